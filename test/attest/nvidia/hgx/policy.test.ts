// Goal: a policy may count the GPUs and switches of a machine; one that does not is read as before, and only `verify
// gpu` takes one that does.

import { expect, test } from 'bun:test'
import { gpuPolicySchema, parseHgxPolicy } from '../../../../src/attest/nvidia/hgx/policy.ts'
import { parseGpuPolicy } from '../../../../src/attest/nvidia/policy.ts'
import { HGX, topologyDocument } from '../../../rigs/attest/gpu/hgx.ts'
import { policyDocument } from '../../../rigs/attest/gpu/simulated.ts'

const parse = (topology: unknown) => parseHgxPolicy({ ...policyDocument(), topology })

test('goal: a policy without a topology counts nothing; each field of one is required and checked', () => {
  expect(parseHgxPolicy(policyDocument()).topology).toBe('any')
  expect(parse(topologyDocument(HGX)).topology).toEqual({
    ...{ gpus: 8, switches: 4, switchBiosVersions: ['96.10.55.00.01'] },
    switchSerials: ['A0', 'A1', 'A2', 'A3'].map(end => `50203D711E1C4F1A${end}`),
  })
  const none = { gpus: 2, switches: 0, switchBiosVersions: 'any', switchSerials: 'any' }
  expect(parse(none).topology).toMatchObject({ switches: 0 })
  // Lists that no evidence could satisfy, or that nothing would be compared with.
  const { switchSerials, switchBiosVersions } = topologyDocument(HGX)
  const words = 'gpu policy.topology'
  expect(() => parse({ ...none, switchSerials })).toThrow(`${words}.switchSerials: a list for 0 switches`)
  expect(() => parse({ ...none, switchBiosVersions })).toThrow(`${words}.switchBiosVersions: a list for 0 switches`)
  const few = { ...topologyDocument(HGX), switchSerials: switchSerials.slice(1) }
  expect(() => parse(few)).toThrow(`${words}.switchSerials: 3 for 4 switches; write all, or "any"`)
  expect(parse({ ...few, switches: 3 }).topology).toMatchObject({ switches: 3 })
  for (const [name, value] of [
    ['gpus', 0],
    ['gpus', 33],
    ['switches', -1],
    ['switches', 33],
    ['switches', '4'],
    ['switchBiosVersions', ['96.10']],
    ['switchSerials', ['50203d']],
  ] as const) {
    expect(() => parse({ ...topologyDocument(HGX), [name]: value })).toThrow(`gpu policy.topology.${name}`)
  }
  for (const name of Object.keys(topologyDocument(HGX))) {
    const { [name as 'gpus']: _, ...rest } = topologyDocument(HGX)
    expect(() => parse(rest)).toThrow(`gpu policy.topology.${name}: it is missing`)
  }
  expect(() => parse({ ...topologyDocument(HGX), gpu: 8 })).toThrow('gpu policy.topology.gpu: unknown field')
})

test('goal: the policy of a VM, whose evidence has no switches, cannot count them', () => {
  expect(() => parseGpuPolicy({ ...policyDocument(), topology: topologyDocument(HGX) })).toThrow(
    'gpu policy.topology: unknown field',
  )
})

test('goal: the schema names every field', () => {
  expect(gpuPolicySchema).toMatchObject({
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Policy for attestation reports of NVIDIA GPUs and switches',
    required: Object.keys(policyDocument()),
    properties: { format: { const: 'strongroom/gpu-policy/v1' }, topology: { default: 'any' } },
    additionalProperties: false,
  })
})
