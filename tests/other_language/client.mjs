// Publishes Arrow batches to a ringfence node, provokes refusals and reads everything back: written from
// docs/protocol.md alone. `node client.mjs ADDRESS TOPIC` prints one JSON line, see README.md.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Field, Int64, Message, Schema, Table, Utf8, tableFromIPC, tableToIPC, vectorFromArray,
} from "apache-arrow";
import hashing from "xxhash-wasm";
import {
  CODE, Connection, OPCODE, REPEATED, SEND_AGAIN, STATUS, crc32c, readRecords, view,
} from "./wire.mjs";

const REDIRECT_NAMES = ["", "not_owner", "stale_version", "stale_epoch", "sealed", "closed"];
const NOTE_KIND = 1;
const ROWS_KIND = 1;
const ATTEMPTS = 16;
const BATCHES = 2;
const BATCH_ROWS = 500;
const NOTE = "first batch of the JavaScript client";
const END_OF_STREAM = Uint8Array.of(255, 255, 255, 255, 0, 0, 0, 0);

// The messages of an IPC stream, each with its continuation marker, length, flatbuffer and buffers.
function ipcMessages(stream) {
  const messages = [];
  for (let at = 0; at + 8 <= stream.length; ) {
    const bytes = view(stream).getUint32(at + 4, true);
    if (bytes === 0) break; // end of stream
    const message = Message.decode(stream.subarray(at + 8, at + 8 + bytes));
    const end = at + 8 + bytes + Number(message.bodyLength);
    messages.push(stream.slice(at, end));
    at = end;
  }
  return messages;
}

const SCHEMA = new Schema([new Field("id", new Int64(), false), new Field("name", new Utf8(), true)]);
const SCHEMA_MESSAGE = ipcMessages(tableToIPC(new Table(SCHEMA), "stream"))[0];

function batchMessage(rows) {
  const id = vectorFromArray(rows.map((row) => row.id), new Int64());
  const name = vectorFromArray(rows.map((row) => row.name), new Utf8());
  const messages = ipcMessages(tableToIPC(new Table(SCHEMA, { id, name }), "stream"));
  assert.equal(messages.length, 2, "a schema message and one record batch");
  return messages[1];
}

function batchRows(schemaMessage, message) {
  const table = tableFromIPC(Buffer.concat([schemaMessage, message, END_OF_STREAM]));
  return table.toArray().map((row) => ({ id: row.id, name: row.name }));
}

// Ids use all 64 bits, names are null, empty or more than ASCII: what a careless client gets wrong.
function makeRows(first, count) {
  return Array.from({ length: count }, (_, index) => {
    const number = first + index;
    const name = number % 5 === 0 ? null : number % 7 === 0 ? "" : `row ${number} – ñ`;
    return { id: BigInt.asIntN(64, BigInt(number) * 0x9e3779b97f4a7c15n), name };
  });
}

function keyBytes(value) {
  if (typeof value === "string") return new TextEncoder().encode(value);
  const bytes = new Uint8Array(8);
  view(bytes).setBigInt64(0, value, true);
  return bytes;
}

const { h64Raw } = await hashing();

function slotOf(row, key) {
  const values = key.map((name) => row[name]).filter((value) => value !== null);
  return Number(values.reduce((hash, value) => h64Raw(keyBytes(value), hash), 42n) >> 48n);
}

function byPartition(rows, table) {
  const groups = new Map();
  for (const row of rows) {
    const slot = slotOf(row, table.key);
    const entry = table.partitions.find((one) => one.state === "ACTIVE" && one.lo <= slot && slot <= one.hi);
    groups.set(entry, [...(groups.get(entry) ?? []), row]);
  }
  return groups;
}

// One item of an extension, filled with zeros to a multiple of 64 as the whole extension must be.
function noteExtension(text) {
  const note = new TextEncoder().encode(text);
  const bytes = new Uint8Array(Math.ceil((8 + note.length) / 64) * 64);
  view(bytes).setUint16(0, NOTE_KIND, true);
  view(bytes).setUint32(4, note.length, true);
  bytes.set(note, 8);
  return bytes;
}

function readNote(extension) {
  assert.equal(view(extension).getUint16(0, true), NOTE_KIND, "kind of the extension's first item");
  return new TextDecoder().decode(extension.subarray(8, 8 + view(extension).getUint32(4, true)));
}

// A producer of one topic: what it knows of the routing, and the next sequence of each partition.
class Producer {
  constructor(connection, topic, table, opened) {
    Object.assign(this, { connection, topic, table, id: opened.producer_id, epoch: opened.producer_epoch });
    this.sequences = new Map();
    this.calls = 0;
  }

  // The header fields and the body of one group of rows. Sent again, they are the same.
  prepare(entry, rows, note = "") {
    const extension = note ? noteExtension(note) : new Uint8Array(0);
    const fields = {
      topic: this.topic, partition: entry.partition, layoutVersion: this.table.version,
      ownerEpoch: entry.epoch, producerId: this.id, producerEpoch: this.epoch,
      sequence: this.sequences.get(entry.partition) ?? 0, send: this.calls, rows: rows.length, schemaId: 0,
      extensionBytes: extension.length,
    };
    return { fields, body: Buffer.concat([extension, batchMessage(rows)]) };
  }

  async publish(entry, rows, note) {
    const batch = this.prepare(entry, rows, note);
    this.sequences.set(entry.partition, batch.fields.sequence + 1);
    return { ...batch, entry, rows, answer: await this.deliver(batch) };
  }

  async deliver({ fields, body }) {
    let answer;
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      answer = await this.connection.request(OPCODE.PUBLISH, fields, body);
      if (answer.status === STATUS.OK) return answer;
      if (answer.status === STATUS.REFUSED && !SEND_AGAIN.has(answer.code)) break;
      await sleep(answer.retryAfterMs);
      if (answer.status === STATUS.REDIRECT) await this.reroute(fields);
    }
    throw new Error(`publish: status ${answer.status} code ${answer.code} ${answer.value?.message ?? ""}`);
  }

  // Only where the partition is; the sequence and the bytes stay what they were.
  async reroute(fields) {
    this.table = await fetchTable(this.connection, this.topic);
    const entry = this.table.partitions.find((one) => one.partition === fields.partition);
    Object.assign(fields, { layoutVersion: this.table.version, ownerEpoch: entry.epoch });
  }

  // All groups of a batch are under way at once; within a partition one batch follows the other's answer.
  publishBatch(rows, note) {
    this.calls += 1;
    const groups = [...byPartition(rows, this.table)];
    const sent = groups.map(([entry, group], index) => this.publish(entry, group, index ? "" : note));
    return Promise.all(sent);
  }
}

async function fetchTable(connection, topic) {
  const { value } = await connection.ask(OPCODE.TABLE, { topic });
  await connection.send(OPCODE.TABLE_ACK, 0, { topic, sequence: value.generation }, new Uint8Array(0));
  return value;
}

async function openTopic(connection, name) {
  const hello = {
    version_min: 1, version_max: 1, client: "ringfence-javascript 1", cluster: null, history: null,
    credential: null,
  };
  await connection.ask(OPCODE.HELLO, {}, hello, STATUS.READY);
  const created = await connection.ask(OPCODE.TOPIC_CREATE, {}, {
    name, schema: SCHEMA_MESSAGE, key: ["id"], partitions: 4, replication: 1, retention_bytes: null,
    retention_ms: null, properties: {}, exist_ok: false,
  });
  const topic = created.value.topic;
  const table = await fetchTable(connection, topic);
  assert.equal(table.partitions.length, 4);
  const opened = await connection.ask(OPCODE.PRODUCER_OPEN, {}, { topic: name, name: null, count: 1 });
  return new Producer(connection, topic, table, opened.value);
}

// Publishes everything; checks that offsets go on from batch to batch. Rows and batches by partition id.
async function publishAll(producer) {
  const rows = new Map(producer.table.partitions.map((entry) => [entry.partition, []]));
  const batches = [];
  for (let number = 0; number < BATCHES; number++) {
    const made = makeRows(number * BATCH_ROWS, BATCH_ROWS);
    for (const batch of await producer.publishBatch(made, number ? "" : NOTE)) {
      const stored = rows.get(batch.entry.partition);
      assert.equal(batch.answer.firstOffset, BigInt(stored.length), "first offset of a batch");
      assert.equal(batch.answer.rows, batch.fields.rows, "rows stored");
      assert.equal(batch.answer.sequence, BigInt(batch.fields.sequence), "sequence of the answer");
      stored.push(...batch.rows);
      batches.push(batch);
    }
  }
  return { rows, batches };
}

async function checkRepeated(connection, { fields, body, answer }) {
  const again = await connection.ask(OPCODE.PUBLISH, fields, body);
  assert.equal(again.flags, answer.flags | REPEATED, "flags of the repeated answer");
  for (const name of ["partition", "firstOffset", "rows", "sequence", "ownerEpoch"])
    assert.equal(again[name], answer[name], `${name} of the repeated answer`);
  return true;
}

// Each of them must be told apart by its code, and none may store a row: the reads after this say so.
async function checkRefusals(producer, { entry, rows }) {
  const { fields, body } = producer.prepare(entry, rows);
  const send = (changed) => producer.connection.request(OPCODE.PUBLISH, { ...fields, ...changed }, body);

  const gap = await send({ sequence: fields.sequence + 3 });
  assert.deepEqual([gap.status, gap.code], [STATUS.REFUSED, CODE.SEQUENCE_GAP]);
  assert.equal(gap.sequence, BigInt(fields.sequence), "the sequence that the node expects");

  const stale = await send({ ownerEpoch: BigInt(entry.epoch) - 1n });
  assert.deepEqual([stale.status, REDIRECT_NAMES[stale.code]], [STATUS.REDIRECT, "stale_epoch"]);
  assert.equal(stale.ownerEpoch, BigInt(entry.epoch), "the epoch that holds");

  const damaged = await send({ bodyCrc: crc32c(body) ^ 1 });
  assert.deepEqual([damaged.status, damaged.code], [STATUS.REFUSED, CODE.BODY_CRC]);
  return { sequence_gap: gap.code, stale_epoch: stale.code, body_crc: damaged.code };
}

// All rows of a partition up to its mark. A small byte limit, so that one answer does not hold them all.
async function readPartition(connection, topic, partition, schemas) {
  const found = { rows: [], notes: [] };
  const { endOffset } = await connection.ask(OPCODE.END_OFFSETS, { topic, partition });
  let ownerEpoch = 0n;
  for (let next = 0n; next < endOffset; ) {
    const wanted = { topic, partition, sequence: next, send: 1024, ownerEpoch, deadlineMs: 1000 };
    const answer = await connection.ask(OPCODE.FETCH, wanted);
    const records = readRecords(answer.body).filter((one) => one.kind === ROWS_KIND);
    assert.ok(records.length, `no rows at offset ${next} below the mark ${endOffset}`);
    for (const record of records) {
      addRecord(found, record, schemas, Number(next - record.firstOffset));
      next = record.firstOffset + BigInt(record.rows);
      ownerEpoch = record.ownerEpoch;
    }
  }
  return found;
}

// A record may begin below the wanted offset: `skip` rows of it are not wanted.
function addRecord(found, record, schemas, skip) {
  if (record.extensionBytes) found.notes.push(readNote(record.body.subarray(0, record.extensionBytes)));
  const rows = batchRows(schemas[record.schemaId], record.body.subarray(record.extensionBytes));
  assert.equal(rows.length, record.rows, "rows of the record");
  found.rows.push(...rows.slice(skip));
}

async function readAll({ connection, topic, table }, published) {
  const notes = [];
  for (const { partition } of table.partitions) {
    const found = await readPartition(connection, topic, partition, table.schemas);
    assert.deepEqual(found.rows, published.get(partition), `rows of partition ${partition}`);
    notes.push(...found.notes);
  }
  assert.deepEqual(notes, [NOTE], "the note of the first batch");
}

async function main(address, topicName) {
  const connection = new Connection(address);
  try {
    const producer = await openTopic(connection, topicName);
    const { rows, batches } = await publishAll(producer);
    const repeated = await checkRepeated(connection, batches[0]);
    const refused = await checkRefusals(producer, batches[0]);
    await readAll(producer, rows);
    // Ids as text: JSON numbers do not have 64 bits.
    const partitions = Object.fromEntries(
      [...rows].map(([partition, list]) => [partition, list.map((row) => [String(row.id), row.name])]),
    );
    const count = [...rows.values()].flat().length;
    console.log(JSON.stringify({ rows: count, partitions, repeated, refused }));
  } finally {
    await connection.close();
  }
}

const [address, topicName] = process.argv.slice(2);
if (!topicName) {
  console.error("usage: node client.mjs ADDRESS TOPIC");
  process.exit(2);
}
await main(address, topicName);
