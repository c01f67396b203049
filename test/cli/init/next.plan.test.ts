// Goal: what an operator still has to do after `strongroom init`, in its order, for each way in which a host is set up.

import { expect, test } from 'bun:test'
import { nextSteps } from '../../../src/cli/init/next.plan.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { STATUS } from '../../rigs/admin-status.ts'

const config = defaultConfig()
const status = { ...STATUS, evidence_simulated: false }
const steps = (changes: object = {}, of: typeof status = status) =>
  nextSteps({ config: { ...config, ...changes }, status: of, organization: 'acme' })

const publish = 'publish what `strongroom operator-key` prints, and manifest.json of each image: clients pin both'
const key =
  'register a key that acme made by `strongroom key new`: strongroom key add acme LINE; ' +
  'or mint one: strongroom key create acme'
const backup = 'keep a backup: strongroom help backup'
const noModel = 'prompts fail: the gateway has no model: strongroom upstream add URL, or strongroom help gateway'
const off = { ...config.listen, inference: '', dns: '' }

test('goal: with its own certificate, no DNS, no gateway and no network there are three steps', () => {
  const tls = { ...config.tls, certificate_file: '/c' }
  expect(steps({ listen: off, tls, network: { ...config.network, pool_v4: '' } })).toEqual([publish, key, backup])
})

test('goal: names, routes and the authority are handed to others, by the address that clients reach', () => {
  const network = { ...config.network, pool_v4: '203.0.113.0/24', public_v4: '198.51.100.7' }
  const listen = { ...off, dns: '198.51.100.7:53', inference: '0.0.0.0:443' }
  expect(steps({ domain: 'agents.example', listen, network })).toEqual([
    'delegate agents.example to ns.agents.example at 198.51.100.7',
    'route 203.0.113.0/24 to 198.51.100.7',
    noModel,
    'give clients the authority /ca.pem, or set tls.certificate_file',
    publish,
    key,
    'and for the gateway, by `strongroom gateway key new`: strongroom gateway key add acme LINE; ' +
      'or mint one: strongroom gateway key create acme',
    backup,
  ])
  const unnamed = steps({ domain: 'agents.example', listen, network: { ...network, public_v4: '' } })
  expect(unnamed.slice(0, 2)).toEqual([
    'delegate agents.example to ns.agents.example at this host',
    'route 203.0.113.0/24 to this host',
  ])
})

test('goal: what keeps the host from being ready comes first, and then that its evidence is simulated', () => {
  const problem = { subject: null, since: '2026-11-26T09:00:00.000Z', affects: 'creates', remedy: 'make room' } as const
  const problems: (typeof status)['problems'] = [
    { ...problem, name: 'disk', severity: 'critical', detail: 'it is full' },
    { ...problem, name: 'backup', severity: 'warning', detail: 'it is old' },
  ]
  expect(steps({ listen: off }, { ...status, evidence_simulated: true, problems }).slice(0, 3)).toEqual([
    'not ready: disk: it is full; make room',
    'warning: backup: it is old; make room',
    'evidence is SIMULATED on this host and must not be trusted; `strongroom doctor` lists what SEV-SNP needs',
  ])
})

test('goal: a host of a fleet enters it, instead of keys for an organization', () => {
  const tls = { ...config.tls, certificate_file: '/c' }
  const of = { ...config, tls, listen: off, network: { ...config.network, pool_v4: '' } }
  expect(nextSteps({ config: of, status, organization: null })).toEqual([
    publish,
    'enter the fleet: strongroom fleet join (strongroom help fleet)',
    backup,
  ])
})

test('goal: a host that IPv6 alone reaches names its IPv6 address and network', () => {
  const network = { ...config.network, pool_v4: '', pool_v6: '2001:db8:1::/48', public_v6: '2001:db8::10' }
  expect(steps({ domain: 'agents.example', listen: { ...off, dns: '[::]:53' }, network }).slice(0, 2)).toEqual([
    'delegate agents.example to ns.agents.example at 2001:db8::10',
    'route 2001:db8:1::/48 to 2001:db8::10',
  ])
})

test('goal: a gateway with a model, or elsewhere, lacks none', () => {
  const listen = { ...off, inference: '0.0.0.0:443' }
  expect(steps({ listen })).toContain(noModel)
  const worker = { ...config.inference.worker, model_disk: 'd' }
  expect(steps({ listen, inference: { ...config.inference, worker } })).not.toContain(noModel)
  expect(steps({ listen, instances: { ...config.instances, inference_base_url: 'https://e/v1' } })).not.toContain(
    noModel,
  )
})
