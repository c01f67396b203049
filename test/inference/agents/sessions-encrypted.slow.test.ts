// Recorded sessions of agents through the encrypted form, and against the gateway in the enclave: the last request of
// each session, which holds all of it, gets the very answer that a plain request to a host's gateway gets.

import { expect, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { decodeSessions, type RecordedRequest } from '../../../scripts/rigs/agents/fixture.ts'
import { speaks, spokenAnswer } from '../../../scripts/rigs/agents/speaks.ts'
import { postEncrypted } from '../../../scripts/rigs/gateway/encrypted-client.ts'
import { KEY, startGateway, startHostGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'

const folder = resolve(import.meta.dir, '../../vectors/agents')

/** The last request of every session, by program and session. */
const SAMPLE: readonly (readonly [name: string, request: RecordedRequest])[] = readdirSync(folder)
  .sort()
  .flatMap(file => {
    const { program, sessions } = decodeSessions(readFileSync(resolve(folder, file), 'utf8'))
    return Object.entries(sessions).flatMap(([session, requests]) => {
      const request = requests.at(-1)
      return request === undefined ? [] : [[`${program} ${session}`, request] as const]
    })
  })

/** Requests of megabytes, on a busy machine, too. */
const patientMs = 300_000

/** Headers that name what the engine did not get, and whether a retry may help. */
const COMPARED = ['content-type', 'x-strongroom-ignored', 'x-should-retry']

/** Without what no two responses have in common: ids, the second in which they were made, and pings. */
function comparable(text: string): string {
  return text
    .replaceAll(/^(?:event: ping\ndata: .*|:.*)\n\n/gm, '')
    .replaceAll(/\b([a-z]{2,9})[_-][0-9a-f-]{20,40}\b/g, '$1_ID')
    .replaceAll(/"(created|created_at|completed_at)":\s*[0-9.]+/g, '"$1":0')
}

function shown(status: number, headers: Headers, text: string) {
  return { status, headers: COMPARED.map(name => headers.get(name)), text: comparable(text) }
}

// Goal: no session has another answer because its body was encrypted or because the gateway is in a VM.
test(
  'the last request of each session',
  async () => {
    await using undo = new AsyncDisposableStack()
    const upstream = await startUpstream(speaks)
    undo.defer(upstream.stop)
    const engine = target(upstream.url, { content: ['image', 'file'] })
    const options = {
      limits: { bodyBytesMax: 33_554_432, responseBytesMax: 8_388_608 },
      caller: { tokensPerMinute: 1_000_000_000 },
    }
    const host = undo.use(startHostGateway([engine], options))
    const gateway = undo.use(await startGateway([engine], options))
    expect(SAMPLE.length).toBeGreaterThan(25)
    for (const [name, { method, path, headers, body }] of SAMPLE) {
      // The coding of a recorded body is not that of the one that is sent here.
      const { 'content-encoding': _, ...own } = headers
      const sendTo = async (url: string) => {
        const answer = await fetch(url + path, {
          method,
          headers: { ...own, authorization: `Bearer ${KEY}` },
          body: JSON.stringify(body),
        })
        return shown(answer.status, answer.headers, await answer.text())
      }
      const plain = await sendTo(host.url)
      expect([name, plain.status]).toEqual([name, 200])
      // A stream has the sentence in pieces.
      for (const word of spokenAnswer.split(' ')) expect([name, plain.text.includes(word)]).toEqual([name, true])
      expect([name, await sendTo(gateway.url)]).toEqual([name, plain])
      const sentPlain = upstream.seen.at(-1)?.body
      const sealed = await postEncrypted(gateway, path, body, { headers: own })
      expect([name, shown(sealed.response.status, sealed.headers, await sealed.text())]).toEqual([name, plain])
      expect([name, upstream.seen.at(-1)?.body]).toEqual([name, sentPlain])
    }
  },
  patientMs,
)
