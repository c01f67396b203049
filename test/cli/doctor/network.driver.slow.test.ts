// Goal: doctor asks the identity provider for its document and its keys, and says what is wrong with them, so that the
// operator learns it before the first person signs in. The provider is a scripted one on this machine.

import { expect, test } from 'bun:test'
import { collectNetworkFacts } from '../../../src/cli/doctor/network.driver.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { startProvider } from '../../rigs/console/provider.ts'

test('goal: a provider that works has its keys counted; one that does not is described', async () => {
  await using provider = await startProvider()
  const config = { ...defaultConfig(), console: { ...defaultConfig().console, oidc: provider.config } }
  const judged = async () => (await collectNetworkFacts(config, { isRoot: false })).provider
  expect(await judged()).toEqual({ ok: true, text: `${provider.issuer} answers, keys: 1, algorithms: RS256, ES256` })
  expect(provider.requests).toEqual(['/realm/.well-known/openid-configuration', '/realm/keys'])

  provider.self.instead.set('/realm/keys', () => Response.json({ keys: [] }))
  expect(await judged()).toEqual({
    ok: false,
    text: `${provider.issuer}/keys answers with status 200 and no JSON document of keys`,
  })
  provider.self.metadata = { code_challenge_methods_supported: ['plain'] }
  expect(await judged()).toEqual({
    ok: false,
    text: `the discovery document of ${provider.issuer} is not usable: its code_challenge_methods_supported has "plain", and this console needs S256`,
  })
  provider.self.metadata = { issuer: `https://other.example/${'x'.repeat(10_000)}` }
  const other = await judged()
  expect(other?.text).toContain('is not usable: its issuer is "https://other.example/xxx')
  expect(other?.text.length).toBeLessThan(1_000)
})
