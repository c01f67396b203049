// Goal: neither side of a terminated connection makes the broker hold what the other side does not read.

import { expect, test } from 'bun:test'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'
import { connectProgram, eachHead, rigHost, startRig } from '../../rigs/broker/terminated.ts'

const secret: Secret = {
  name: 'GITHUB_TOKEN',
  host: rigHost,
  port: 443,
  header: 'Authorization',
  format: 'Bearer {}',
  value: 'ghp_0123456789abcdef',
}

test('goal: a program that does not read holds up the upstream, and then gets every byte', async () => {
  const sizeBytes = 48 * 1024 * 1024
  const piece = Buffer.alloc(65_536, 'abcdefghijklmnop')
  let accepted = 0
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((_, socket) => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${sizeBytes}\r\n\r\n`)
      const more = () => {
        while (accepted < sizeBytes) {
          accepted += piece.length
          if (!socket.write(piece)) {
            socket.once('drain', more)
            return
          }
        }
      }
      more()
    }),
  })
  const socket = await connectProgram(rig)
  socket.pause()
  socket.write(`GET / HTTP/1.1\r\nHost: ${rigHost}\r\nConnection: close\r\n\r\n`)
  // Until the upstream stands still; a machine that is slow makes it stand still earlier.
  for (let before = -1; accepted === 0 || before !== accepted; await Bun.sleep(200)) before = accepted
  expect(accepted).toBeLessThan(sizeBytes / 2)
  let got = 0
  const ended = new Promise<void>(resolve => socket.once('end', resolve))
  socket.on('data', (chunk: Buffer) => {
    got += chunk.length
  })
  socket.resume()
  await ended
  expect(got).toBeGreaterThanOrEqual(sizeBytes)
})
