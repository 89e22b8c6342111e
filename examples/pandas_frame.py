"""pandas writes a frame, and gets the topic as one."""

import pandas as pd
import pyarrow as pa

import ringfence

with ringfence.connect() as client:
    frame = pd.DataFrame({"city": ["Oslo", "Rome", "Oslo"], "degrees": [3.5, 17.0, 4.5]})
    client.create_topic("pandas-weather", schema=pa.Schema.from_pandas(frame), key=["city"], exist_ok=True)
    with client.producer("pandas-weather") as producer:
        producer.send(frame)
    # pandas 3 has DataFrame.from_arrow(reader); before it pyarrow makes the frame from the same stream
    back = pa.RecordBatchReader.from_stream(client.read("pandas-weather")).read_pandas()
    print(back.groupby("city")["degrees"].mean())
