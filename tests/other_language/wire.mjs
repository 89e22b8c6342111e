// The wire of docs/protocol.md: headers, checksums, and a connection that matches answers to requests.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { decode, encode } from "@msgpack/msgpack";
import { Dealer } from "zeromq";

const MAGIC = 0x434e4652;
const RECORD_MAGIC = 0x43525246;
const VERSION = 1;
export const OPCODE = {
  HELLO: 1, PUBLISH: 16, FETCH: 17, END_OFFSETS: 18, TABLE: 32, TABLE_ACK: 34, TOPIC_CREATE: 80,
  PRODUCER_OPEN: 86,
};
export const STATUS = { OK: 0, READY: 1, REDIRECT: 2, REFUSED: 3, PUSH: 6 };
export const CODE = {
  BODY_CRC: 5, SEQUENCE_GAP: 13, AHEAD: 18, DEADLINE: 19, HELD: 20, DISK_FULL: 23, OVERLOADED: 25,
  TOO_FEW_REPLICAS: 26, STOPPING: 30, INTERNAL: 31, UNKNOWN_OUTCOME: 33,
};
// Refusals after which the very same request may succeed; after a gap something else must be sent first.
export const SEND_AGAIN = new Set(Object.values(CODE).filter((code) => code !== CODE.SEQUENCE_GAP));
const MSGPACK = 1;
export const REPEATED = 2;
const ANSWER_MS = 30_000;

// Field name -> [offset, bytes] of the header of 128 bytes; 8-byte fields are BigInt.
const REQUEST = {
  requestId: [8, 8], topic: [16, 8], partition: [24, 8], layoutVersion: [32, 8], ownerEpoch: [40, 8],
  producerId: [48, 8], producerEpoch: [56, 8], sequence: [64, 8], send: [72, 8], rows: [80, 4],
  schemaId: [84, 4], deadlineMs: [88, 4], extensionBytes: [92, 4], bodyBytes: [96, 4], bodyCrc: [100, 4],
};
const ANSWER = {
  requestId: [8, 8], topic: [16, 8], partition: [24, 8], layoutVersion: [32, 8], ownerEpoch: [40, 8],
  firstOffset: [48, 8], endOffset: [56, 8], sequence: [64, 8], send: [72, 8], generation: [80, 8],
  creditBytes: [88, 8], rows: [96, 4], retryAfterMs: [100, 4], code: [104, 2], flags: [106, 2],
  bodyBytes: [108, 4], bodyCrc: [112, 4],
};
const RECORD = {
  span: [32, 4], kind: [40, 1], rows: [44, 4], partition: [56, 8], firstOffset: [72, 8], ownerEpoch: [88, 8],
  schemaId: [136, 4], extensionBytes: [140, 4], bodyBytes: [144, 4], bodyCrc: [148, 4],
};
const EMPTY = new Uint8Array(0);

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  return value;
});

export function crc32c(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

export const view = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

function unpack(layout, bytes) {
  const from = view(bytes);
  const read = { 1: "getUint8", 2: "getUint16", 4: "getUint32", 8: "getBigUint64" };
  const field = ([name, [at, size]]) => [name, from[read[size]](at, true)];
  return Object.fromEntries(Object.entries(layout).map(field));
}

function requestHeader(opcode, flags, fields) {
  const bytes = new Uint8Array(128);
  const to = view(bytes);
  to.setUint32(0, MAGIC, true);
  to.setUint16(4, VERSION, true);
  to.setUint8(6, opcode);
  to.setUint8(7, flags);
  for (const [name, value] of Object.entries(fields)) {
    const [at, size] = REQUEST[name];
    if (size === 8) to.setBigUint64(at, BigInt(value), true);
    else to.setUint32(at, value, true);
  }
  to.setUint32(124, crc32c(bytes.subarray(0, 124)), true);
  return bytes;
}

function readAnswer(frames) {
  const [header, body = EMPTY] = frames;
  assert.equal(header.length, 128, "an answer's header has 128 bytes");
  assert.equal(view(header).getUint32(0, true), MAGIC, "magic of the answer");
  const crc = crc32c(header.subarray(0, 124));
  assert.equal(view(header).getUint32(124, true), crc, "header CRC of the answer");
  const answer = { opcode: header[6], status: header[7], ...unpack(ANSWER, header), body };
  assert.equal(answer.bodyBytes, body.length, "body length of the answer");
  assert.equal(answer.bodyCrc, body.length ? crc32c(body) : 0, "body CRC of the answer");
  if (answer.flags & MSGPACK) answer.value = decode(body, { useBigInt64: true });
  return answer;
}

// The log records of a FETCH body, each with the bytes that its producer sent.
export function readRecords(bytes) {
  const records = [];
  for (let at = 0; at < bytes.length; at += records.at(-1).span) {
    const header = bytes.subarray(at, at + 192);
    assert.equal(view(header).getUint32(0, true), RECORD_MAGIC, "magic of the record");
    assert.equal(view(header).getUint32(4, true), crc32c(header.subarray(8)), "header CRC of the record");
    const record = unpack(RECORD, header);
    const body = bytes.subarray(at + 192, at + 192 + record.bodyBytes);
    assert.equal(record.bodyCrc, crc32c(body), "body CRC of the record");
    records.push({ ...record, body });
  }
  return records;
}

export class Connection {
  constructor(address) {
    this.socket = new Dealer({
      linger: 0, immediate: true, maxMessageSize: 128 << 20, heartbeatInterval: 10_000,
      handshakeInterval: 5_000, sendHighWaterMark: 64, receiveHighWaterMark: 64, sendTimeout: ANSWER_MS,
    });
    this.socket.connect(address);
    this.waiting = new Map();
    this.sending = Promise.resolve();
    this.nextId = 1n;
    this.unanswered = 0;
    this.credit = Infinity; // until READY names it
    this.receiving = this.receive();
  }

  async receive() {
    try {
      for await (const frames of this.socket) this.take(readAnswer(frames));
    } catch (error) {
      for (const { reject } of this.waiting.values()) reject(error);
    }
  }

  // Pushes are passed over: a table that became stale shows as a REDIRECT, and is fetched then.
  take(answer) {
    const waiter = this.waiting.get(answer.requestId);
    if (answer.status === STATUS.PUSH || !waiter) return;
    this.waiting.delete(answer.requestId);
    this.credit = Number(answer.creditBytes);
    this.unanswered -= waiter.size;
    clearTimeout(waiter.timer);
    waiter.resolve(answer);
  }

  // The socket takes one send at a time, hence the chain.
  send(opcode, flags, fields, body) {
    const frames = [requestHeader(opcode, flags, { bodyBytes: body.length, ...fields })];
    if (body.length) frames.push(body);
    this.sending = this.sending.then(() => this.socket.send(frames));
    return this.sending;
  }

  // Any answer, also a refusal. `message` is bytes or a map for MessagePack; `fields` may hold a wrong CRC.
  async request(opcode, fields = {}, message = EMPTY) {
    const body = message instanceof Uint8Array ? message : encode(message, { useBigInt64: true });
    while (this.waiting.size && this.unanswered + body.length > this.credit) await sleep(1);
    const requestId = this.nextId++;
    const flags = body === message ? 0 : MSGPACK;
    const answered = new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no answer to opcode ${opcode}`)), ANSWER_MS);
      this.waiting.set(requestId, { resolve, reject, timer, size: body.length });
    });
    this.unanswered += body.length;
    await this.send(opcode, flags, { requestId, bodyCrc: body.length ? crc32c(body) : 0, ...fields }, body);
    return answered;
  }

  async ask(opcode, fields, message, wanted = STATUS.OK) {
    const answer = await this.request(opcode, fields, message);
    const told = `opcode ${opcode}: code ${answer.code} ${answer.value?.message ?? ""}`;
    assert.equal(answer.status, wanted, told);
    return answer;
  }

  async close() {
    this.socket.close();
    await this.receiving;
  }
}
