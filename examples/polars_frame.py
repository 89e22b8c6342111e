"""polars writes a frame, and reads the topic as one: the reader is an Arrow stream."""

import polars as pl

import ringfence

with ringfence.connect() as client:
    frame = pl.DataFrame({"city": ["Oslo", "Rome", "Oslo"], "degrees": [3.5, 17.0, 4.5]})
    client.create_topic("polars-weather", schema=frame.to_arrow().schema, key=["city"], exist_ok=True)
    with client.producer("polars-weather") as producer:
        producer.send(frame)
    back = pl.DataFrame(client.read("polars-weather"))
    print(back.group_by("city").agg(pl.col("degrees").mean()).sort("city"))
