// Goal: service A publishes the files in use byte for byte, names none of a service that is off, and reads them again
// only after some seconds, because anyone may request them.

import { afterAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { createPublished, type PublishedParts } from '../../src/appliance/published.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { matches } from '../../src/contract/check.ts'
import { PublishedFiles } from '../../src/contract/http/published.ts'

const defaults = defaultConfig()
const dir = mkdtempSync(join(tmpdir(), 'srt-published-'))
afterAll(() => rmSync(dir, { recursive: true }))
const file = (name: string, text: string) => writeFileSync(join(dir, name), text)
for (const image of ['instance', 'inference', 'builder']) {
  mkdirSync(join(dir, image))
  file(`${image}/manifest.json`, `{ "name":\t"${image}" }\n`)
}
file('ca.pem', 'a certificate\n')

const clock = createManualClock()
const images = {
  vm: { ...defaults.vm, image_dir: join(dir, 'instance') },
  builds: { ...defaults.builds, image_dir: join(dir, 'builder') },
  inference: { ...defaults.inference, worker: { ...defaults.inference.worker, image_dir: join(dir, 'inference') } },
}
const listen = { ...defaults.listen, inference: '0.0.0.0:8442', builds: '0.0.0.0:8443' }

function published(changes: Partial<PublishedParts> = {}, config: Partial<PublishedParts['config']> = {}) {
  const parts = { operatorKey: { publicPem: 'a key\n' }, caFile: join(dir, 'ca.pem'), clock }
  const all = { ...images, listen, ...config }
  return createPublished({ ...parts, config: { ...defaults, ...all }, ...changes })
}
const read = (text: string) => JSON.parse(text) as PublishedFiles

test('goal: the files are there byte for byte, in the form of the contract', () => {
  const inVm = { ...images.inference, placement: 'vm' as const }
  const document = read(published({}, { inference: inVm })())
  expect(matches(PublishedFiles, document)).toBe(true)
  const manifest = (image: string) => `{ "name":\t"${image}" }\n`
  expect(document).toEqual({
    format: 'strongroom/published/v1',
    ca: 'a certificate\n',
    operator_key: 'a key\n',
    images: { instance: manifest('instance'), inference: manifest('inference'), builder: manifest('builder') },
  })
})

test('goal: nothing of a service that is off, of a gateway on the host, or of an image that is missing', () => {
  const off = read(published({ caFile: null }, { listen: { ...listen, inference: '', builds: '' } })())
  expect([off.ca, off.images.inference, off.images.builder]).toEqual([null, null, null])
  const onHost = { ...images.inference, placement: 'host' as const }
  expect(read(published({}, { inference: onHost })()).images.inference).toBeNull()
  const missing = { ...images.vm, image_dir: join(dir, 'none') }
  expect(read(published({}, { vm: missing })()).images.instance).toBeNull()
})

test('goal: a replaced image appears within five seconds, and until then nothing is read', () => {
  const text = published()
  const before = text()
  file('instance/manifest.json', 'another')
  clock.advance(4_999)
  expect(text()).toBe(before)
  clock.advance(1)
  expect(read(text()).images.instance).toBe('another')
})
