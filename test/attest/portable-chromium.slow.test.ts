// The attestation library and the verifier in a real browser give what they give in Bun. Here and not beside its other
// tests because a browser takes a while.

import { expect, test } from 'bun:test'
import { expectResults } from '../rigs/portable/expectations.ts'
import { suiteInput } from '../rigs/portable/prepare.ts'
import { bundledSuite, runChromium } from '../rigs/portable/runtimes.ts'
import { runSuite } from '../rigs/portable/suite.ts'

// Goal: every field, digest, verdict and reason is the same in Chromium, under a policy that forbids eval and
// WebAssembly, and nothing is fetched.
test('the suite in Chromium', async () => {
  const input = await suiteInput()
  const { text } = await bundledSuite()
  const here = await runSuite(input)
  const { results, version, requests } = await runChromium(text, input)
  expect(Number(version.split('.')[0])).toBeGreaterThan(100)
  const [first] = requests
  expect(
    requests.every(url => url.startsWith('http://127.0.0.1:') && new URL(url).host === new URL(first ?? '').host),
  ).toBe(true)
  expect(requests.slice(0, 4).map(url => new URL(url).pathname)).toEqual(['/', '/page.js', '/suite.js', '/input.json'])
  expect(JSON.parse(results)).toEqual(JSON.parse(here))
  expect(results === here).toBe(true)
  await expectResults(results)
})
