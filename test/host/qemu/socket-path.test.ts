import { expect, test } from 'bun:test'
import { checkSocketPath, socketPathBytesMax } from '../../../src/host/qemu/socket-path.ts'

test('goal: a socket path over the limit of sun_path is a Fault that says the limit', () => {
  const path = `/${'x'.repeat(socketPathBytesMax - 1)}`
  expect(checkSocketPath(path)).toBe(path)
  expect(() => checkSocketPath(`${path}x`)).toThrow('108 bytes, the limit is 107')
  expect(() => checkSocketPath(`/${'é'.repeat(54)}`)).toThrow('109 bytes')
  for (const wrong of ['relative', '/a\0b']) expect(() => checkSocketPath(wrong)).toThrow('not absolute')
})
