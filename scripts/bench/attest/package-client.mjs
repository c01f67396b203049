// A program that has installed the verifier's package: sends the same request in turns, encrypted over a pinned connection, over a pinned connection alone,
// and by an agent of node:https that keeps its connection. Standard input: { options, key, rounds }. Standard output: the median of each, in ms.

import { Agent, request } from 'node:https'
import { text } from 'node:stream/consumers'
import { attestedFetch } from '@strongroom/verifier'

const { options, key, rounds } = JSON.parse(await text(process.stdin))
const url = `${options.url}/v1/chat/completions`
const body = JSON.stringify({ model: 'tiny', messages: [{ role: 'user', content: 'Hello' }] })
const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }

async function attested(encryption) {
  const fetch = attestedFetch({ ...options, encryption })
  await fetch.verify()
  return async () => {
    const response = await fetch(url, { method: 'POST', headers, body })
    const answer = await response.text()
    if (response.status !== 200) throw new Error(`${response.status}: ${answer}`)
  }
}

function plain() {
  const agent = new Agent({ keepAlive: true, maxSockets: 1, ca: options.ca })
  return () =>
    new Promise((resolve, reject) => {
      const sent = request(url, { agent, method: 'POST', headers }, response => text(response).then(resolve, reject))
      sent.on('error', reject)
      sent.end(body)
    })
}

const kinds = { sealed: await attested('required'), pinned: await attested('off'), plain: plain() }
const times = { sealed: [], pinned: [], plain: [] }
for (let round = 0; round < 2 * rounds; round += 1) {
  for (const [kind, send] of Object.entries(kinds)) {
    const startedMs = performance.now()
    await send()
    // The first half warms up.
    if (round >= rounds) times[kind].push(performance.now() - startedMs)
  }
}
const median = values => values.sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)]
const medians = Object.fromEntries(Object.entries(times).map(([kind, values]) => [kind, median(values)]))
process.stdout.write(JSON.stringify(medians))
process.exit(0)
