// DNS messages of somebody who means harm: good ones, changed in ways that parsers have failed at. Seeded; the same
// seed gives the same messages.

import { decode } from 'dns-packet'
import { readQuery } from '../../../src/instances/dns/message.codec.ts'
import { HOST, query } from './query.ts'

export const messageBytesMax = 4_096

/** Numbers in [0, below). Mulberry32. */
export function numbersFrom(seed: number): (below: number) => number {
  let state = seed | 0
  return below => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

type Draw = (below: number) => number
type Change = (message: Buffer, draw: Draw) => Buffer

const NAMES = [
  HOST,
  'agents.example',
  'ns.agents.example',
  'zzzz9999.acme.agents.example',
  'evil.com',
  '.',
  `${'a.'.repeat(120)}agents.example`,
]
const TYPES = ['A', 'AAAA', 'NS', 'SOA', 'ANY', 'SSHFP', 'OPT', 'AXFR', 'IXFR', 'TXT', 'UNKNOWN_0', 'UNKNOWN_65535']
const OPT = Buffer.from([0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0])
const COOKIE = Buffer.from([0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8])

const write16 = (message: Buffer, at: number, value: number): Buffer => {
  const changed = Buffer.from(message)
  if (at >= 0 && at + 2 <= changed.length) changed.writeUInt16BE(value, at)
  return changed
}
const oneOf = <T>(values: readonly T[], draw: Draw): T => values[draw(values.length)] as T
const counted = (message: Buffer, at: number, more: number) =>
  message.length < at + 2 ? message : write16(message, at, (message.readUInt16BE(at) + more) & 0xffff)

const CHANGES: readonly Change[] = [
  message => message,
  (message, draw) => message.subarray(0, draw(message.length + 1)),
  (message, draw) => Buffer.concat([message, Buffer.alloc(draw(64), draw(256))]),
  (message, draw) => {
    const changed = Buffer.from(message)
    for (let i = draw(6); i >= 0; i -= 1) changed[draw(changed.length)] = draw(256)
    return changed
  },
  // Counts that lie.
  (message, draw) => write16(message, 4 + 2 * draw(4), oneOf([0, 1, 2, 255, 0xffff], draw)),
  // A pointer somewhere: to itself, to the header, backwards, ahead.
  (message, draw) => {
    const at = 12 + draw(Math.max(1, message.length - 12))
    return write16(message, at, 0xc000 | oneOf([at, 0, 12, draw(message.length + 1), 0x3fff], draw))
  },
  // A label length.
  (message, draw) => write16(message, 12 + draw(30), oneOf([0x3f61, 0x4061, 0x8061, 0xff61, 0x0061, 0x0100], draw)),
  // OPT once more, counted or not, and OPT in a section where it does not belong.
  (message, draw) => Buffer.concat([counted(message, 10, draw(2)), OPT]),
  (message, draw) => Buffer.concat([counted(message, 6 + 2 * draw(3), 1), oneOf([OPT, COOKIE], draw)]),
  // Class, type and flags.
  (message, draw) => write16(message, message.length - 4 + 2 * draw(2), oneOf([0, 3, 255, 254, 41, 0xffff], draw)),
  (message, draw) => write16(message, 2, draw(0x10000)),
  // Records that point to each other, as many as fit.
  (message, draw) => {
    const chainBytes = 2 * (1 + draw(1_000))
    const start = message.length + 11
    const chain = Buffer.alloc(chainBytes)
    for (let at = 0; at < chainBytes; at += 2)
      chain.writeUInt16BE(0xc000 | ((at === 0 ? message.length : start + at - 2) & 0x3fff), at)
    const first = Buffer.from([0, 0, 10, 0, 1, 0, 0, 0, 0, chainBytes >> 8, chainBytes & 0xff])
    const last = start + chainBytes - 2
    const pointing = Buffer.from([0xc0 | (last >> 8), last & 0xff, 0, 10, 0, 1, 0, 0, 0, 0, 0, 0])
    const count = Math.max(0, Math.floor((messageBytesMax - start - chainBytes) / pointing.length))
    return Buffer.concat([counted(message, 10, 1 + count), first, chain, ...Array<Buffer>(count).fill(pointing)])
  },
  // Records and options that are empty, as many as fit.
  (message, draw) => {
    const empty = oneOf([Buffer.from([0, 0, 10, 0, 1, 0, 0, 0, 0, 0, 0]), OPT], draw)
    const count = Math.floor((messageBytesMax - message.length) / empty.length)
    return Buffer.concat([counted(message, 10, count), ...Array<Buffer>(Math.max(0, count)).fill(empty)])
  },
  message => {
    const optionsBytes = Math.max(0, (messageBytesMax - message.length - OPT.length) & ~3)
    const opt = write16(OPT, 9, optionsBytes)
    return Buffer.concat([counted(message, 10, 1), opt, Buffer.alloc(optionsBytes, Buffer.from([0xfd, 0xe9, 0, 0]))])
  },
  (_, draw) => Buffer.from(Array.from({ length: draw(600) }, () => draw(256))),
]

/** At most `messageBytesMax` each. */
export function* hostileMessages(seed: number, count: number): Generator<Buffer> {
  const draw = numbersFrom(seed)
  for (let i = 0; i < count; i += 1) {
    const edns =
      draw(2) === 0 ? {} : { edns: { version: draw(8) === 0 ? 1 : 0, flags: draw(0x10000), size: draw(0x10000) } }
    let message = query({ name: oneOf(NAMES, draw), type: oneOf(TYPES, draw), id: draw(0x10000), ...edns })
    for (let changes = draw(4); changes >= 0; changes -= 1)
      if (message.length > 0) message = oneOf(CHANGES, draw)(message, draw)
    yield message.subarray(0, messageBytesMax)
  }
}

/** Bound in the header comment of the responder. */
const extraBytesMax = 67
const cookieBytes = 16

/** Faults of the answer to a message: too long, unreadable, or about something else. */
export function faultsOf(message: Buffer, answer: Buffer): string[] {
  const read = readQuery(message)
  const query = read.kind === 'query' ? read.query : null
  const mostBytes = message.length + extraBytesMax + (query?.edns?.cookie == null ? 0 : cookieBytes)
  const packet = decode(answer)
  const options = packet.additionals?.filter(({ type }) => type === 'OPT') ?? []
  const questionBytes = query?.question?.bytes ?? Buffer.alloc(0)
  const rules: Record<string, boolean> = {
    'too long': answer.length <= mostBytes && answer.length <= 512,
    'another id': answer.readUInt16BE(0) === message.readUInt16BE(0),
    'no response': packet.flag_qr && !packet.flag_ra,
    'another opcode': ((answer[2] ?? 0) & 0x78) === ((message[2] ?? 0) & 0x78),
    'more than a header for what cannot be read': query !== null || answer.length === 12,
    'another question': answer.subarray(12, 12 + questionBytes.length).equals(questionBytes),
    'OPT, or none': options.length === (query === null || query.edns === null ? 0 : 1),
  }
  return Object.entries(rules).flatMap(([fault, holds]) => (holds ? [] : [fault]))
}
