// Events and results as clients follow and fetch them: from the start, resumed after a cut, slowly, in parallel, in
// parts.

import { describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type BuildsRig,
  buildsSettings,
  certainClock,
  parseEvents,
  randomNonce,
  source,
  startBuilds,
} from '../../../scripts/rigs/build/builds-service.ts'
import { goodScript, line, resultOf, type Step } from '../../../scripts/rigs/build/engine.ts'
import { writeBuilderImage } from '../../../scripts/rigs/build/image-directory.ts'
import { until } from '../../../scripts/rigs/until.ts'

const auth = (key: string) => ({ authorization: `Bearer ${key}` })

/** Opens the events and reads them piece by piece. */
async function open(rig: BuildsRig, id: string, query = '') {
  const response = await fetch(`${rig.url()}/build/${id}/events${query}`, { headers: auth(rig.keys.acme) })
  const reader = response.body?.getReader()
  let text = ''
  const read = async (): Promise<boolean> => {
    const next = await reader?.read()
    if (next === undefined || next.done) return false
    text += Buffer.from(next.value).toString()
    return true
  }
  /** The last event may have come in part. */
  const whole = () => parseEvents(text.slice(0, text.lastIndexOf('\n\n') + 2))
  return {
    response,
    /** Reads on until `enough` of what came so far, or the end. */
    until: async (enough: (events: ReturnType<typeof parseEvents>) => boolean) => {
      while (!enough(whole())) if (!(await read())) break
      return whole()
    },
    close: () => reader?.cancel(),
  }
}

describe('events', () => {
  test('goal: a stream shows each event as it happens, and ends after complete', async () => {
    await using rig = await startBuilds()
    const held = Promise.withResolvers<void>()
    rig.world.script = [line('init', 'one'), { kind: 'wait', until: held.promise }, line('init', 'two'), ...goodScript]
    const id = await rig.submit()
    const stream = await open(rig, id)
    expect(stream.response.headers.get('content-type')).toBe('text/event-stream')
    const before = await stream.until(events => events.some(({ data }) => data.msg === 'one'))
    expect(before.some(({ data }) => data.msg === 'two')).toBe(false)
    held.resolve()
    const all = await stream.until(() => false)
    expect(all.at(-1)?.data).toEqual({ type: 'complete', result: { status: 'ok' } })
    expect(all.map(({ id: number }) => number)).toEqual(all.map((_, at) => at + 1))
  })

  test('goal: whoever comes back goes on after the last event seen, by header or query, without a gap or a repetition', async () => {
    await using rig = await startBuilds()
    const id = await rig.submit()
    await rig.ended(id)
    const all = await rig.events(id)
    for (const after of [0, 1, 5, all.length - 1]) {
      expect(await rig.events(id, `?from=${after}`)).toEqual(all.slice(after))
      const answer = await rig.send('GET', `/build/${id}/events`, { headers: { 'last-event-id': String(after) } })
      expect(parseEvents(answer.text)).toEqual(all.slice(after))
    }
    // A client that saw the end, or invents an id, gets an end too.
    expect(await rig.events(id, `?from=${all.length}`)).toEqual([])
    expect(await rig.events(id, '?from=999999')).toEqual([])
    for (const query of ['?from=x', '?from=-1', '?from=', '?from=1&from=2', '?from=1e3']) {
      expect([query, (await rig.send('GET', `/build/${id}/events${query}`)).status]).toEqual([query, 400])
    }
    const wrong = await rig.send('GET', `/build/${id}/events`, { headers: { 'last-event-id': 'x' } })
    expect(wrong.status).toBe(400)
  })

  test('goal: a reader who is cut off again and again, and one who reads late, get every event', async () => {
    await using rig = await startBuilds()
    const count = 2000
    const lines = Array.from({ length: count }, (_, at): Step => line('build', `line ${at} ${'x'.repeat(200)}`))
    rig.world.script = [...lines, ...goodScript]
    const id = await rig.submit()
    const late = await fetch(`${rig.url()}/build/${id}/events`, { headers: auth(rig.keys.acme) })
    const seen: string[] = []
    for (let after = 0, isOver = false; !isOver; ) {
      const stream = await open(rig, id, `?from=${after}`)
      const events = await stream.until(found => found.length >= 150)
      // The last one may be half there: only whole ones count, as for every client.
      seen.push(...events.map(({ data }) => String(data.msg ?? data.type)))
      after = events.at(-1)?.id ?? after
      isOver = events.some(({ event }) => event === 'complete')
      await stream.close()
    }
    expect(seen.filter(msg => msg.startsWith('line '))).toEqual(
      lines.map(step => (step.kind === 'line' ? step.msg : '')),
    )
    expect(seen.at(-1)).toBe('complete')
    await rig.ended(id)
    const all = parseEvents(await late.text())
    expect(all.length).toBe(seen.length)
  })

  test('goal: a hundred readers get every event, and none is left when they are gone', async () => {
    await using rig = await startBuilds()
    const held = Promise.withResolvers<void>()
    rig.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...goodScript]
    const id = await rig.submit()
    const readers = Array.from({ length: 100 }, () => rig.events(id))
    await until('it runs', 20_000, () => rig.build(id).state === 'running')
    held.resolve()
    const all = await Promise.all(readers)
    expect(new Set(all.map(events => JSON.stringify(events))).size).toBe(1)
    expect(all[0]?.at(-1)?.event).toBe('complete')
  })

  test('goal: readers end with the daemon, and go on with the next one', async () => {
    await using rig = await startBuilds()
    const held = Promise.withResolvers<void>()
    rig.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...goodScript]
    const id = await rig.submit()
    const stream = await open(rig, id)
    const before = await stream.until(events => events.some(({ data }) => data.msg === 'begun'))
    await rig.restart()
    held.resolve()
    await rig.ended(id)
    const rest = await rig.events(id, `?from=${before.at(-1)?.id}`)
    expect(before.length + rest.length).toBe((await rig.events(id)).length)
    expect(rest.at(-1)?.event).toBe('complete')
  })
})

describe('result', () => {
  test('goal: a result is fetched whole or in parts, as RFC 9110 has it', async () => {
    await using rig = await startBuilds()
    const id = await rig.submit()
    await rig.ended(id)
    const whole = resultOf(source)
    const size = whole.length
    const etag = `"${createHash('sha256').update(whole).digest('hex')}"`
    const table: [Record<string, string>, number, string, string | null][] = [
      [{}, 200, whole.toString(), null],
      [{ range: 'bytes=0-3' }, 206, whole.toString().slice(0, 4), `bytes 0-3/${size}`],
      [{ range: 'bytes=5-' }, 206, whole.toString().slice(5), `bytes 5-${size - 1}/${size}`],
      [{ range: 'bytes=-4' }, 206, whole.toString().slice(-4), `bytes ${size - 4}-${size - 1}/${size}`],
      [{ range: 'bytes=3-9999' }, 206, whole.toString().slice(3), `bytes 3-${size - 1}/${size}`],
      [{ range: 'bytes=-9999' }, 206, whole.toString(), `bytes 0-${size - 1}/${size}`],
      [{ range: `bytes=${size}-` }, 416, '', `bytes */${size}`],
      [{ range: 'bytes=-0' }, 416, '', `bytes */${size}`],
      [{ range: 'bytes=5-3' }, 200, whole.toString(), null],
      [{ range: 'bytes=0-1,3-4' }, 200, whole.toString(), null],
      [{ range: 'lines=0-1' }, 200, whole.toString(), null],
      [{ range: 'bytes=0-3', 'if-range': etag }, 206, whole.toString().slice(0, 4), `bytes 0-3/${size}`],
      [{ range: 'bytes=0-3', 'if-range': '"other"' }, 200, whole.toString(), null],
      [{ 'if-none-match': etag }, 304, '', null],
      [{ 'if-none-match': `"x", W/${etag}` }, 304, '', null],
      [{ 'if-none-match': '"x"' }, 200, whole.toString(), null],
    ]
    for (const [headers, status, text, range] of table) {
      const answer = await rig.send('GET', `/build/${id}/result`, { headers })
      const found = [answer.status, answer.text, answer.headers.get('content-range'), answer.headers.get('etag')]
      expect([headers, ...found]).toEqual([headers, status, text, range, etag])
    }
    const head = await rig.send('HEAD', `/build/${id}/result`)
    expect([head.status, head.text, head.headers.get('content-length')]).toEqual([200, '', String(size)])
  })

  test('goal: there is no result before a good end', async () => {
    await using rig = await startBuilds()
    const held = Promise.withResolvers<void>()
    rig.world.script = [{ kind: 'wait', until: held.promise }, ...goodScript]
    const id = await rig.submit()
    await until('it runs', 20_000, () => rig.build(id).state === 'running')
    expect((await rig.send('GET', `/build/${id}/result`)).status).toBe(404)
    held.resolve()
    const stream = await open(rig, id)
    // As soon as a client has seen the end, the result is there.
    await stream.until(() => false)
    expect((await rig.send('GET', `/build/${id}/result`)).status).toBe(200)
  })
})

describe('VMs of their own', () => {
  test('goal: a reserved VM takes one build, of its owner; of two at once one gets 200, the other 409', async () => {
    await using rig = await startBuilds()
    const { json } = await rig.send('POST', '/vm')
    const vm = String(json.vm_id)
    expect(json.vm_url).toBe(`https://${new URL(rig.url()).host}/vm/${vm}`)
    expect((await rig.send('GET', `/vm/${vm}/health`, { key: null })).text).toBe('ok')
    const body = () => ({ nonce: randomNonce(), source_data: source.toString('base64') })
    expect((await rig.send('POST', `/vm/${vm}/build`, { key: rig.keys.globex, body: body() })).status).toBe(404)
    expect((await rig.send('POST', `/vm/${vm}/build`, { body: { ...body(), nonce: '' } })).status).toBe(400)
    const both = await Promise.all([1, 2].map(() => rig.send('POST', `/vm/${vm}/build`, { body: body() })))
    expect(both.map(({ status }) => status).sort()).toEqual([200, 409])
    const id = String(both.find(({ status }) => status === 200)?.json.job_id)
    await rig.ended(id)
    expect(rig.build(id)).toMatchObject({ state: 'ok', vmId: vm })
    expect((await rig.send('POST', `/vm/${vm}/build`, { body: body() })).status).toBe(409)
    expect((await rig.send('POST', `/vm/${vm}/build`, { key: rig.keys.globex, body: body() })).status).toBe(404)
    const base = `/vm/${vm}/build/${id}`
    expect((await rig.send('GET', `${base}/result`)).text).toBe(resultOf(source).toString())
    expect(parseEvents((await rig.send('GET', `${base}/events`)).text).at(-1)?.event).toBe('complete')
    expect((await rig.send('GET', base)).json.job_id).toBe(id)
    const other = await rig.submit()
    expect((await rig.send('GET', `/vm/${vm}/build/${other}`)).status).toBe(404)
    // One whose VM came from the dispatcher is at its own address too, and has its build.
    await rig.ended(other)
    const own = rig.build(other).vmId
    expect((await rig.send('POST', `/vm/${own}/build`, { body: body() })).status).toBe(409)
    expect((await rig.send('GET', `/vm/${own}/build/${other}`)).status).toBe(200)
  })

  test('goal: a build for a reserved VM can be followed as soon as it is accepted, before the VM is there', async () => {
    await using rig = await startBuilds()
    rig.world.boots = false
    const { json } = await rig.send('POST', '/vm')
    const body = { nonce: randomNonce(), source_data: source.toString('base64') }
    const sent = await rig.send('POST', `/vm/${json.vm_id}/build`, { body })
    const stream = await open(rig, String(sent.json.job_id))
    expect(stream.response.status).toBe(200)
    expect((await rig.send('DELETE', `/build/${sent.json.job_id}`)).status).toBe(200)
    expect((await stream.until(() => false)).at(-1)?.event).toBe('complete')
  })

  test('goal: reserved VMs count as VMs in use, and go when no build comes', async () => {
    let offsetMs = 0
    const clock = { ...certainClock, nowMs: () => certainClock.nowMs() + offsetMs }
    await using rig = await startBuilds({ clock, settings: { concurrentMax: 2 } })
    const vms = [await rig.send('POST', '/vm'), await rig.send('POST', '/vm', { key: rig.keys.globex })]
    expect(vms.map(({ status }) => status)).toEqual([200, 200])
    expect((await rig.send('POST', '/vm')).status).toBe(429)
    const waiting = await rig.submit()
    expect(rig.build(waiting).state).toBe('queued')
    offsetMs = buildsSettings.reservedMs
    rig.builds().vms.wake()
    await until('they are gone', 20_000, () => rig.world.vms().filter(({ state }) => state === 'gone').length >= 2)
    expect((await rig.send('GET', `/vm/${vms[0]?.json.vm_id}/health`)).status).toBe(404)
    expect((await rig.ended(waiting)).state).toBe('ok')
  })

  test('goal: warm VMs are kept, given to builds and to reservations, and made anew', async () => {
    await using rig = await startBuilds({ warm: 2 })
    const states = () => rig.builds().vms.status()
    await until('two are warm', 20_000, () => states().warm === 2)
    const warm = rig.world.vms().map(({ id }) => id)
    const id = await rig.submit()
    await rig.ended(id)
    expect(warm).toContain(rig.build(id).vmId ?? '')
    const { json } = await rig.send('POST', '/vm')
    expect(rig.world.vms().map(view => view.id)).toContain(String(json.vm_id))
    await until('two are warm again', 20_000, () => states().warm === 2)
    expect(states()).toMatchObject({ wanted: 2, warm: 2, reserved: 1 })
    await rig.restart({ warm: 0 })
    await until('none is kept warm', 20_000, () => states().warm + states().booting === 0)
  })
})

test('goal: the image of build VMs is pulled from the same listener, without a key, and the record says how', async () => {
  const imageDirectory = mkdtempSync(join(tmpdir(), 'strongroom-image-'))
  try {
    await writeBuilderImage(imageDirectory)
    await using rig = await startBuilds({ imageDirectory })
    expect((await rig.send('GET', '/v2/', { key: null })).status).toBe(200)
    const manifest = await rig.send('GET', '/v2/builder/manifests/latest', { key: null })
    const digest = manifest.headers.get('docker-content-digest') ?? ''
    expect([manifest.status, digest]).toEqual([200, expect.stringMatching(/^sha256:[0-9a-f]{64}$/)])
    const id = await rig.submit()
    await rig.ended(id)
    const { json } = await rig.send('GET', `/build/${id}`)
    expect(json.commands).toEqual([
      expect.stringContaining(`/build/${id}/result`),
      expect.stringContaining(`/builder@${digest} dir:./builder-image`),
      expect.stringContaining(`strongroom verify build ${id}.tar.gz --nonce ${rig.build(id).nonce}`),
    ])
  } finally {
    rmSync(imageDirectory, { recursive: true, force: true })
  }
})
