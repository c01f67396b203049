// The simulated platform looks like AMD's to those who trust it, and like nothing to everyone else.

import { describe, expect, test } from 'bun:test'
import { simulatedKeys } from '../../../scripts/rigs/launch/simulated-keys.ts'
import {
  authorityValidity,
  chipIdOf,
  SIMULATED_TCBS,
  simulatedAsOf,
  simulatedPlatform,
  simulatedPlatforms,
  vekValidity,
} from '../../../scripts/rigs/launch/simulated-platform.ts'
import { PRODUCTS } from '../../../src/attest/amd/product.ts'
import { AMD_ROOTS } from '../../../src/attest/amd/roots.ts'
import { decodeTcb } from '../../../src/attest/amd/tcb.ts'
import { decodeRoot } from '../../../src/attest/amd/trusted-roots.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { decodeReport, reportSizeBytes, reportVersions } from '../../../src/attest/report/report.ts'
import {
  createSimulatedAuthority,
  issueSimulatedVcek,
  issueSimulatedVlek,
  SIMULATED,
} from '../../../src/attest/simulator/certificates.ts'
import { exportSimulatedKeys, importSimulatedKeys } from '../../../src/attest/simulator/keys.ts'
import { signSimulatedReport, simulateReport, unsignedReport } from '../../../src/attest/simulator/report.ts'
import { type Evidence, verifyEvidence } from '../../../src/attest/verify/evidence.ts'
import { commonNameOf, decodeCertificate, isSame } from '../../../src/attest/x509/certificate.ts'
import { loadX509 } from '../../../src/attest/x509/runtime.ts'
import { present } from '../../../src/base/assert.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { readSimulatedRoot } from '../../../src/verifier/simulated-root.ts'
import { failed, failures, vector } from '../../rigs/attest/chain-vectors.ts'
import { reissue } from '../../rigs/attest/forged-chain.ts'

const rules = { asOf: simulatedAsOf, requireCrl: false, policy: 'any' } as const

describe.each(PRODUCTS)('%s', product => {
  test('verifies for those who trust it', async () => {
    // Goal: every version of report, by either key, passes all checks below the simulated root, and says SIMULATED.
    const platform = await simulatedPlatform(product)
    for (const version of reportVersions) {
      for (const signer of ['vcek', 'vlek'] as const) {
        const report = await platform.report({ version, signer })
        const roots = [platform.authority.root]
        const answer = await verifyEvidence({ ...rules, report, vek: platform[signer], product, roots })
        expect(failures(answer.checks)).toBe('')
        expect([answer.ok, answer.simulated, answer.product]).toEqual([true, true, product])
        expect(answer.report?.version).toBe(version)
        expect(answer.checks.find(check => check.name === 'chain-root')?.reason).toContain(SIMULATED)
      }
    }
  })

  test('verifies for nobody else', async () => {
    // Goal: below AMD's roots nothing simulated passes, in any form; and it is no matter of policy.
    const { authority, report: makeReport, ...platform } = await simulatedPlatform(product)
    const { root } = authority
    const real = present(
      AMD_ROOTS.find(root => root.product === product),
      'a pinned root',
    )
    const chains: Evidence[] = []
    for (const version of reportVersions) {
      for (const signer of ['vcek', 'vlek'] as const) {
        const report = await makeReport({ version, signer })
        const item = { ...rules, report, product, vek: platform[signer], maskedChipId: 'any' } as const
        const intermediate = signer === 'vcek' ? root.ask : root.asvk
        chains.push(item, { ...item, roots: AMD_ROOTS }, { ...item, chain: [root.ark, root.ask, root.asvk] })
        chains.push({ ...item, chain: [intermediate, real.ark] }, { ...item, chain: [real.ask, real.asvk, real.ark] })
      }
    }
    for (const evidence of chains) {
      const answer = await verifyEvidence(evidence)
      expect([answer.ok, answer.simulated]).toEqual([false, false])
      const names = failed(answer.checks)
      expect(names.includes('chain-certificates') || names.includes('chain-root')).toBe(true)
    }
  })

  test('bears no name of AMD’s', async () => {
    // Goal: no subject or issuer in a simulated chain can be taken for AMD's, whole or in part.
    const { authority, vcek, vlek } = await simulatedPlatform(product)
    const { ark, ask, asvk } = authority.root
    const real = AMD_ROOTS.map(root => decodeRoot(root)).flatMap(root => [root.ark, root.ask, root.asvk])
    for (const der of [ark, ask, asvk, vcek, vlek]) {
      const { subject, issuer } = decodeCertificate(der)
      for (const name of [subject, issuer]) {
        expect(commonNameOf(name).startsWith(`${SIMULATED}-`)).toBe(true)
        expect(new TextDecoder('latin1').decode(name)).not.toMatch(/Advanced|AMD|Engineering/)
        expect(real.some(certificate => isSame(certificate.subject, name))).toBe(false)
      }
    }
  })

  test('another library agrees', async () => {
    // Goal: the chain's signatures hold by @peculiar/x509 too, and the levels in it are those that were asked for.
    const x509 = await loadX509()
    const { authority, vcek, vlek } = await simulatedPlatform(product)
    const { ark, ask, asvk } = authority.root
    const read = (der: Uint8Array) => new x509.X509Certificate(new Uint8Array(der))
    for (const [signed, issuer] of [
      [ark, ark],
      [ask, ark],
      [asvk, ark],
      [vcek, ask],
      [vlek, asvk],
    ] as const) {
      expect(await read(signed).verify({ publicKey: read(issuer).publicKey, signatureOnly: true })).toBe(true)
    }
    expect(await read(vcek).verify({ publicKey: read(asvk).publicKey, signatureOnly: true })).toBe(false)
  })

  test('reports have the real form', async () => {
    // Goal: what was asked for stands in the report's own fields, in the product's layout, and only version 3 and later
    // name a CPUID.
    const platform = await simulatedPlatform(product)
    for (const version of reportVersions) {
      const bytes = await platform.report({ version, report: { vmpl: 2, policy: 0xb0000n } })
      expect(bytes.length).toBe(reportSizeBytes)
      const report = decodeReport(bytes)
      expect(decodeTcb(report.rawTcb.reported, product)).toEqual(SIMULATED_TCBS[product])
      expect([report.vmpl, report.policy, report.signer]).toEqual([2, 0xb0000n, 'vcek'])
      expect([report.cpuid === null, report.mitigation === null]).toEqual([version < 3, version < 5])
      expect(report.chipId).toEqual(chipIdOf(product))
    }
  })
})

test('a simulated root under AMD’s very names', async () => {
  // Goal: names make no root AMD's: such a chain fails below AMD's roots, and is simulated for whoever trusts it.
  const { authority, vcek, report: makeReport } = await simulatedPlatform('milan')
  const { keys, root } = authority
  const amd = AMD_ROOTS.map(decodeRoot).find(root => root.product === 'milan')
  const real = present(amd, 'a pinned root')
  const names = { ark: real.ark.subject, ask: real.ask.subject }
  const signingKey = keys.ark.privateKey
  const ark = await reissue(root.ark, { subject: names.ark, issuer: names.ark, signingKey })
  const ask = await reissue(root.ask, { subject: names.ask, issuer: names.ark, signingKey })
  const vek = await reissue(vcek, { issuer: names.ask, signingKey: keys.ask.privateKey })
  expect(decodeCertificate(ark).subject).toEqual(real.ark.subject)
  const evidence = { ...rules, report: await makeReport(), vek }
  const below = await verifyEvidence({ ...evidence, chain: [ask, ark] })
  expect([below.ok, below.simulated]).toEqual([false, false])
  expect(failed(below.checks)).toContain('chain-root')
  const pinned = await verifyEvidence({ ...evidence, chain: ask })
  expect(failed(pinned.checks)).toContain('chain-signatures')
  const bare = await verifyEvidence(evidence)
  expect(failed(bare.checks)).toContain('chain-signatures')
  const roots = [...AMD_ROOTS, { product: 'milan', ark, ask, asvk: root.asvk } as const]
  // By its key, whatever of the chain comes along and whichever root stands first: never by a name that another root
  // bears, too.
  for (const chain of [[ask, ark], [ask], undefined, [ask, ark, real.ark.der], [ask, real.ark.der, ark]]) {
    for (const order of [roots, roots.toReversed()]) {
      const trusted = await verifyEvidence({ ...evidence, ...(chain === undefined ? {} : { chain }), roots: order })
      expect([failed(trusted.checks), trusted.ok, trusted.simulated]).toEqual([[], true, true])
    }
  }
  // And AMD's own evidence stays AMD's.
  const theirs = { vek: await vector('reports/milan-v2.vcek.der'), report: await vector('reports/milan-v2.bin') }
  for (const order of [roots, roots.toReversed()]) {
    const hardware = await verifyEvidence({ ...rules, ...theirs, roots: order })
    expect([failed(hardware.checks).filter(name => name.startsWith('chain-')), hardware.simulated]).toEqual([[], false])
  }
  // Where only names are shown it would pass for AMD's: no file may bring it.
  expect(() => readSimulatedRoot(utf8([ark, ask].map(der => toPem(der, 'CERTIFICATE')).join('')))).toThrow(
    "is a name of AMD's",
  )
})

test('one platform does not vouch for another', async () => {
  // Goal: simulated roots of different products, and of different appliances, do not accept each other's evidence.
  const [milan, genoa] = await simulatedPlatforms()
  if (milan === undefined || genoa === undefined) throw new Error('two platforms')
  const report = await milan.report()
  const other = await verifyEvidence({ ...rules, report, vek: milan.vcek, roots: [genoa.authority.root] })
  expect(other.ok).toBe(false)
  const again = await createSimulatedAuthority('milan', await simulatedKeys(), authorityValidity)
  const chain = [milan.authority.root.ask, milan.authority.root.ark]
  const anew = await verifyEvidence({ ...rules, report, vek: milan.vcek, chain, roots: [again.root] })
  expect(failed(anew.checks)).toContain('chain-root')
})

test('keys survive a restart', async () => {
  // Goal: exported and imported keys are the same keys: what the restarted platform signs verifies below the root it
  // kept.
  const { authority } = await simulatedPlatform('turin')
  const keys = await importSimulatedKeys(await exportSimulatedKeys(authority.keys))
  const restarted = { ...authority, keys }
  const tcb = SIMULATED_TCBS.turin
  const chipId = chipIdOf('turin')
  const vlek = await issueSimulatedVlek(restarted, { tcb, cspId: 'CN=again.invalid', validity: vekValidity })
  const vcek = await issueSimulatedVcek(restarted, { tcb, chipId, validity: vekValidity })
  for (const [signer, vek] of Object.entries({ vcek, vlek } as const)) {
    const key = signer === 'vcek' ? keys.vcek : keys.vlek
    const wanted = { product: 'turin', version: 5, tcb, chipId, signer: signer === 'vcek' ? 'vcek' : 'vlek' } as const
    const contents = { reportData: new Uint8Array(64), measurement: new Uint8Array(48) }
    const report = await simulateReport({ ...wanted, ...contents }, key.privateKey)
    const answer = await verifyEvidence({ ...rules, report, vek, roots: [authority.root] })
    expect(failures(answer.checks)).toBe('')
  }
})

test('an expired VLEK', async () => {
  // Goal: a VLEK ends with its year, and the platform can play that.
  const { authority, report: makeReport } = await simulatedPlatform('genoa')
  const validity = { notBefore: new Date('2025-01-01T00:00:00Z'), notAfter: new Date('2026-01-01T00:00:00Z') }
  const vek = await issueSimulatedVlek(authority, { tcb: SIMULATED_TCBS.genoa, cspId: 'CN=x.invalid', validity })
  const report = await makeReport({ signer: 'vlek' })
  const answer = await verifyEvidence({ ...rules, report, vek, roots: [authority.root] })
  expect(failed(answer.checks)).toEqual(['chain-validity'])
})

test('what the simulator does not make', async () => {
  // Goal: levels, chips and fields that no real platform has are refused, and each signature is over its own report.
  const { authority } = await simulatedPlatform('genoa')
  const tcb = SIMULATED_TCBS.genoa
  const good = { tcb, chipId: chipIdOf('genoa'), validity: vekValidity }
  await expect(issueSimulatedVcek(authority, { ...good, chipId: new Uint8Array(8) })).rejects.toThrow('chip_id')
  await expect(issueSimulatedVcek(authority, { ...good, tcb: { ...tcb, fmc: 0 } })).rejects.toThrow('fmc')
  await expect(issueSimulatedVcek(authority, { ...good, tcb: { ...tcb, snp: 256 } })).rejects.toThrow('0 to 255')
  await expect(issueSimulatedVlek(authority, { tcb, cspId: 'é', validity: vekValidity })).rejects.toThrow('ASCII')
  const wanted = {
    product: 'genoa',
    version: 3,
    signer: 'vcek',
    ...good,
    reportData: new Uint8Array(64),
    measurement: new Uint8Array(48),
  } as const
  const key = authority.keys.vcek.privateKey
  await expect(simulateReport({ ...wanted, reportData: new Uint8Array(63) }, key)).rejects.toThrow('reportData')
  const first = await simulateReport(wanted, key)
  const second = await signSimulatedReport({ ...unsignedReport(wanted), guestSvn: 7 }, key)
  expect(decodeReport(second).guestSvn).toBe(7)
  expect(decodeReport(first).signature.r).not.toEqual(decodeReport(second).signature.r)
})
