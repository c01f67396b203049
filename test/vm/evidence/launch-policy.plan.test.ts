// The policy for a report follows from the recorded launch: HOST_DATA is the workload's digest or, without one, the
// document's.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { launchDocument } from '../../../scripts/rigs/guest/attested-guest.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { launchText } from '../../../src/contract/vm/launch.ts'
import {
  failedChecks,
  type HostTrust,
  launchPolicy,
  readLaunch,
  strangeOperatorKey,
} from '../../../src/vm/evidence/launch-policy.plan.ts'
import { faultOf } from '../../rigs/fault-of.ts'

test('goal: a VM with a workload has to report that one, and everything else as its launch document says', () => {
  const [document, operatorKey] = [launchText(launchDocument), new Uint8Array(48).fill(7)]
  const workload = '{"format":"strongroom/workload/v1"}'
  const digest = (text: string) => createHash('sha256').update(text).digest('hex')
  const { hostData: own, ...plain } = launchPolicy({ document, workload: null, operatorKey })
  const { hostData: bound, ...gateway } = launchPolicy({ document, workload, operatorKey })
  const hex = (value: unknown) => (value instanceof Uint8Array ? toHex(value) : value)
  expect([hex(own), hex(bound)]).toEqual([digest(document), digest(workload)])
  expect(gateway).toEqual(plain)
})

const operatorKey = new Uint8Array(48).fill(7)
const launch = { ...launchDocument, measurement: 'ab'.repeat(48) }

test('goal: the report has to have the digest, the key and each bit of the guest policy that the launch names', () => {
  const policyOf = (policy: string) =>
    launchPolicy({ document: launchText({ ...launch, policy }), workload: null, operatorKey })
  const { signers, measurements, idKeyDigest, guestPolicy } = policyOf('0x30000')
  expect(signers).toEqual(['vcek'])
  expect(Array.isArray(measurements) && measurements.map(bytes => toHex(bytes))).toEqual(['ab'.repeat(48)])
  expect(idKeyDigest).toEqual(operatorKey)
  const forbidden = {
    smt: 'forbidden',
    reservedOne: 'forbidden',
    migrate: 'forbidden',
    debug: 'forbidden',
    singleSocket: 'forbidden',
    cxl: 'forbidden',
    aes256Xts: 'forbidden',
    raplOff: 'forbidden',
    ciphertextHiding: 'forbidden',
    pageSwapOff: 'forbidden',
    unknown: 'forbidden',
  } as const
  // Bits 16 and 17 (AMD 56860, table 9).
  expect(guestPolicy).toEqual({ ...forbidden, smt: 'required', reservedOne: 'required' })
  expect(policyOf('0x20000').guestPolicy).toEqual({ ...forbidden, reservedOne: 'required' })
  expect(policyOf('0x100000').guestPolicy).toEqual({ ...forbidden, singleSocket: 'required' })
  expect(policyOf('0x3000000').guestPolicy).toEqual({
    ...forbidden,
    ciphertextHiding: 'required',
    pageSwapOff: 'required',
  })
  // Bits 18 and 19: nobody may look into the VM or move it, whatever its document says.
  expect(policyOf('0xc0000').guestPolicy).toEqual(forbidden)
})

test('goal: only the canonical text of a launch is read', () => {
  const text = launchText(launch)
  expect(readLaunch(text)).toEqual(launch)
  expect(() => readLaunch(` ${text}`)).toThrow('not in its canonical form')
  expect(() => readLaunch(text.replace('{', '{ '))).toThrow('not in its canonical form')
  expect(faultOf(() => readLaunch('{}')).code).toBe('internal')
  expect(faultOf(() => readLaunch(text.replace('"vcpus":2', '"vcpus":0'))).code).toBe('internal')
})

const trust = (change: Partial<HostTrust> = {}): HostTrust => ({
  roots: [],
  simulated: false,
  operatorKeys: [new Uint8Array(48).fill(1), operatorKey],
  ...change,
})

test('goal: a launch is signed with a key that the operator has had on this host, wherever it stands in the list', () => {
  const stranger = 'operator-key: the launch was signed with a key that this host has never had'
  expect(strangeOperatorKey(trust(), operatorKey)).toBeNull()
  expect(strangeOperatorKey(trust(), new Uint8Array(48).fill(1))).toBeNull()
  for (const key of [new Uint8Array(48), operatorKey.subarray(1), new Uint8Array(0)])
    expect(strangeOperatorKey(trust(), key)).toBe(stranger)
  expect(strangeOperatorKey(trust({ operatorKeys: [] }), operatorKey)).toBe(stranger)
})

test('goal: each check that failed is named, each required one that was not made, and evidence of the other platform', () => {
  const checks = [
    { name: 'a', outcome: 'pass', reason: '', required: true },
    { name: 'b', outcome: 'fail', reason: 'wrong', required: true },
    { name: 'c', outcome: 'fail', reason: 'bad', required: false },
    { name: 'd', outcome: 'not-checked', reason: 'no list', required: true },
    { name: 'e', outcome: 'not-checked', reason: 'no need', required: false },
  ] as never
  expect(failedChecks({ checks, simulated: false }, trust())).toEqual(['b: wrong', 'c: bad', 'd: no list'])
  const failed = (simulated: boolean, isTrusted: boolean) =>
    failedChecks({ checks: [], simulated }, trust({ simulated: isTrusted }))
  expect([failed(true, true), failed(false, false)]).toEqual([[], []])
  expect(failed(true, false)).toEqual(['simulated: the evidence is simulated'])
  expect(failed(false, true)).toEqual(['simulated: the evidence is not simulated'])
})
