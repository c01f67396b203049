import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { nftEvent, readMessages } from '../../../src/host/network/netlink-message.ts'

/** A message of nftables, as the kernel writes it. */
function message(type: number, { port = 77, family = 1, attributes = [] as [number, string][] } = {}): Buffer {
  const parts = attributes.map(([kind, text]) => {
    const value = Buffer.from(`${text}\0`)
    const attribute = Buffer.alloc((4 + value.length + 3) & ~3)
    attribute.writeUInt16LE(4 + value.length, 0)
    attribute.writeUInt16LE(kind, 2)
    value.copy(attribute, 4)
    return attribute
  })
  const body = Buffer.concat([Buffer.from([family, 0, 0, 0]), ...parts])
  const header = Buffer.alloc(16)
  header.writeUInt32LE(16 + body.length, 0)
  header.writeUInt16LE((10 << 8) | type, 4)
  header.writeUInt32LE(port, 12)
  return Buffer.concat([header, body])
}

const eventsOf = (...messages: Buffer[]) => readMessages(Buffer.concat(messages)).map(nftEvent)

test('goal: a change names family and table, whatever object it is of, and a generation ends a transaction', () => {
  const named = {
    attributes: [
      [1, 'strongroom'],
      [3, 'guard'],
    ] as [number, string][],
  }
  expect(eventsOf(message(6, named), message(1, { ...named, family: 3 }), message(15))).toEqual([
    { kind: 'change', family: 1, table: 'strongroom' },
    { kind: 'change', family: 3, table: 'strongroom' },
    { kind: 'generation' },
  ])
})

test('goal: what the kernel tells by itself is no change of anybody, and other subsystems are none of ours', () => {
  const named = { attributes: [[1, 'strongroom']] as [number, string][] }
  const other = message(6, named)
  other.writeUInt16LE((1 << 8) | 6, 4)
  expect(eventsOf(message(18, { ...named, port: 0 }), other, message(6))).toEqual([null, null, null])
})

test('goal: no bytes break the reader, and every message that it gives lies within them', () => {
  const whole = message(6, { attributes: [[1, 'strongroom']] })
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    fc.tuple(fc.nat(whole.length - 1), fc.nat(255)).map(([at, value]) => {
      const changed = Buffer.concat([whole, whole])
      changed[at] = value
      return new Uint8Array(changed)
    }),
    fc.nat(whole.length).map(length => new Uint8Array(whole.subarray(0, length))),
  )
  fc.assert(
    fc.property(bytes, given => {
      const messages = readMessages(given)
      expect(messages.reduce((sum, { payload }) => sum + 16 + payload.length, 0)).toBeLessThanOrEqual(given.length)
      for (const message of messages) nftEvent(message)
    }),
  )
})
