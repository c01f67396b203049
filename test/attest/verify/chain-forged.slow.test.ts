// Chains that someone made up: right names, wrong keys; right keys, wrong rights. On a simulated platform, whose keys
// tests have.

import { beforeAll, describe, expect, test } from 'bun:test'
import {
  chipIdOf,
  makeVekKey,
  SIMULATED_TCBS,
  type SimulatedPlatform,
  simulatedAsOf,
  simulatedPlatform,
  vekValidity,
} from '../../../scripts/rigs/launch/simulated-platform.ts'
import { VEK_OID } from '../../../src/attest/amd/vek-extensions.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { issueSimulatedVcek, simulatedName } from '../../../src/attest/simulator/certificates.ts'
import { prepareChain } from '../../../src/attest/verify/chain-prepare.ts'
import { decodeCertificate, OID } from '../../../src/attest/x509/certificate.ts'
import { chainChecks, failed, failures } from '../../rigs/attest/chain-vectors.ts'
import { AUTHORITY, type Forged, forge, reissue } from '../../rigs/attest/forged-chain.ts'

let platform: SimulatedPlatform
let report: Uint8Array
const asOf = simulatedAsOf

beforeAll(async () => {
  platform = await simulatedPlatform('genoa')
  report = await platform.report()
})

/** Failed checks with these parts in the place of the good ones. */
async function failedWith(parts: { vek?: Uint8Array; ask?: Uint8Array; ark?: Uint8Array }): Promise<string[]> {
  const { root } = platform.authority
  const chain = [parts.ask ?? root.ask, parts.ark ?? root.ark]
  return failed(await chainChecks({ vek: parts.vek ?? platform.vcek, chain, roots: [root] }, { report, asOf }))
}

/** The VCEK again, signed by the ASK with other contents. */
function vcekWith(changes: Partial<Forged>): Promise<Uint8Array> {
  return reissue(platform.vcek, { signingKey: platform.authority.keys.ask.privateKey, ...changes })
}

/** The ASK again, signed by the ARK with other contents. */
function askWith(changes: Partial<Forged>): Promise<Uint8Array> {
  return reissue(platform.authority.root.ask, { signingKey: platform.authority.keys.ark.privateKey, ...changes })
}

function otherRsa(name: string, modulusLength: number): Promise<CryptoKeyPair> {
  const algorithm = { name, hash: 'SHA-384', modulusLength, publicExponent: new Uint8Array([1, 0, 1]) }
  return crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
}

test('reissued without changes', async () => {
  // Goal: the table below changes one thing at a time of something that passes.
  const { root } = platform.authority
  const chain = [await askWith({}), root.ark]
  const checks = await chainChecks({ vek: await vcekWith({}), chain, roots: [root] }, { report, asOf })
  expect(failures(checks)).toBe('')
})

describe('the VCEK', () => {
  test('signed by someone else', async () => {
    // Goal: only the intermediate's key makes a VCEK, whatever name the issuer bears.
    const { ark, asvk } = platform.authority.keys
    for (const signingKey of [ark.privateKey, asvk.privateKey, (await otherRsa('RSA-PSS', 2048)).privateKey]) {
      expect(await failedWith({ vek: await vcekWith({ signingKey }) })).toEqual(['chain-signatures'])
    }
  })

  test('signed in another way', async () => {
    // Goal: no hash, salt or scheme but AMD's, although the key is right and the signature too.
    const { privateKey } = platform.authority.keys.ask
    const pkcs8 = await crypto.subtle.exportKey('pkcs8', privateKey)
    const keyFor = (name: string, hash: string) =>
      crypto.subtle.importKey('pkcs8', pkcs8, { name, hash }, true, ['sign'])
    const ways = [
      { name: 'RSA-PSS', hash: 'SHA-256', saltLength: 48 },
      { name: 'RSA-PSS', hash: 'SHA-512', saltLength: 48 },
      { name: 'RSA-PSS', hash: 'SHA-384', saltLength: 32 },
      { name: 'RSA-PSS', hash: 'SHA-384', saltLength: 0 },
      { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-384' },
      { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-1' },
    ]
    for (const algorithm of ways) {
      const vek = await vcekWith({ algorithm, signingKey: await keyFor(algorithm.name, algorithm.hash) })
      expect(await failedWith({ vek })).toEqual(['chain-algorithms', 'chain-signatures'])
    }
  })

  test('with another kind of key', async () => {
    // Goal: a VEK is on P-384; a key of another curve or kind is refused before anything is verified with it.
    const curve = { name: 'ECDSA', namedCurve: 'P-256' }
    const keys = [await crypto.subtle.generateKey(curve, true, ['sign', 'verify']), await otherRsa('RSA-PSS', 2048)]
    for (const { publicKey } of keys) {
      expect(await failedWith({ vek: await vcekWith({ publicKey }) })).toEqual(['vek-certificate'])
    }
  })

  test('with rights it must not have', async () => {
    // Goal: a VEK that may issue certificates, or that carries something critical and unknown, is refused.
    const own = decodeCertificate(platform.vcek).extensions
    const kept = [...own].map(([oid, { critical, value }]) => [oid, critical, value] as const)
    const authority = await vcekWith({ extensions: [...kept, ...AUTHORITY.intermediate] })
    expect(await failedWith({ vek: authority })).toEqual(['chain-authority'])
    const critical = await vcekWith({ extensions: [...kept, ['1.2.3.4', true, new Uint8Array([5, 0])]] })
    expect(await failedWith({ vek: critical })).toEqual(['chain-authority'])
    const harmless = await vcekWith({ extensions: [...kept, ['1.2.3.4', false, new Uint8Array([5, 0])]] })
    expect(await failedWith({ vek: harmless })).toEqual([])
  })

  test('for another product below this root', async () => {
    // Goal: the product that a VEK names is its root's.
    const own = decodeCertificate(platform.vcek).extensions
    const renamed = [...own].map(([oid, { value }]) => {
      const milan = Uint8Array.from([0x16, 5, ...new TextEncoder().encode('Milan')])
      return [oid, false, oid === VEK_OID.productName ? milan : value] as const
    })
    const vek = await vcekWith({ extensions: renamed })
    expect(await failedWith({ vek })).toEqual(['vek-product'])
    // Not for a report of the product that it names either.
    const milan = { ...decodeReport(report), cpuid: { family: 0x19, model: 1, stepping: 1 } }
    const checks = await chainChecks({ vek, roots: [platform.authority.root] }, { report: milan, asOf })
    expect(failed(checks)).toEqual(['vek-product'])
  })

  test('with the short chip ID of a Turin', async () => {
    // Goal: 8 bytes of hwID say too little about a Genoa.
    const own = decodeCertificate(platform.vcek).extensions
    const shortened = [...own].map(([oid, { value }]) => {
      return [oid, false, oid === VEK_OID.hwId ? value.slice(0, 8) : value] as const
    })
    const vek = await vcekWith({ extensions: shortened })
    expect(await failedWith({ vek })).toEqual(['vek-chip-id'])
    const chipId = chipIdOf('genoa').fill(0, 8)
    const roots = [platform.authority.root]
    const checks = await chainChecks({ vek, roots }, { report: { ...decodeReport(report), chipId }, asOf })
    expect(failed(checks)).toEqual(['vek-chip-id'])
  })

  test('of another chip, another TCB, and with another key', async () => {
    // Goal: certificates that are good for something else are not good for this report; whose key it is shows at the
    // report's signature.
    const good = { tcb: SIMULATED_TCBS.genoa, chipId: chipIdOf('genoa'), validity: vekValidity }
    const other = { ...good, chipId: good.chipId.with(63, 0xee) }
    expect(await failedWith({ vek: await issueSimulatedVcek(platform.authority, other) })).toEqual(['vek-chip-id'])
    const older = { ...good, tcb: { ...good.tcb, microcode: good.tcb.microcode - 1 } }
    expect(await failedWith({ vek: await issueSimulatedVcek(platform.authority, older) })).toEqual(['vek-tcb'])
    const { publicKey } = await makeVekKey()
    expect(await failedWith({ vek: await issueSimulatedVcek(platform.authority, { ...good, publicKey }) })).toEqual([])
  })
})

describe('the intermediate', () => {
  test('signed by someone else', async () => {
    // Goal: only the ARK's key makes an intermediate; one that signs itself is none.
    const { ask, asvk } = platform.authority.keys
    for (const { privateKey } of [ask, asvk]) {
      expect(await failedWith({ ask: await askWith({ signingKey: privateKey }) })).toEqual(['chain-signatures'])
    }
  })

  test('without the right to sign', async () => {
    // Goal: no chain through a certificate that is not an authority, or that may not sign certificates.
    const [constraints, usage] = AUTHORITY.intermediate
    const notAuthority = [OID.basicConstraints, true, Uint8Array.from([0x30, 0])] as const
    const notSigning = [OID.keyUsage, true, Uint8Array.from([3, 2, 7, 0x80])] as const
    const broken = [OID.keyUsage, true, Uint8Array.from([4, 1, 4])] as const
    for (const extensions of [
      [usage],
      [constraints],
      [notAuthority, usage],
      [constraints, notSigning],
      [constraints, broken],
    ]) {
      expect(await failedWith({ ask: await askWith({ extensions }) })).toEqual(['chain-authority'])
    }
  })

  test('out of its time', async () => {
    // Goal: the validity of the intermediate counts as that of the VEK does.
    const notAfter = new Date(asOf.getTime() - 1000)
    const notBefore = new Date(asOf.getTime() + 1000)
    expect(await failedWith({ ask: await askWith({ notAfter }) })).toEqual(['chain-validity'])
    expect(await failedWith({ ask: await askWith({ notBefore }) })).toEqual(['chain-validity'])
  })

  test('under another name', async () => {
    // Goal: the ARK's signature is not enough: a VCEK comes from the ASK by its name.
    const subject = simulatedName('SEV-Other')
    const ask = await askWith({ subject })
    expect(await failedWith({ ask, vek: await vcekWith({ issuer: subject }) })).toEqual(['chain-names'])
    const asvk = platform.authority.root.asvk
    const issuer = simulatedName('SEV-VLEK-Genoa')
    const vek = await vcekWith({ issuer, signingKey: platform.authority.keys.asvk.privateKey })
    expect(await failedWith({ ask: asvk, vek })).toEqual(['chain-names'])
  })

  test('with a small key', async () => {
    // Goal: an RSA key below 2048 bits vouches for nothing.
    const small = await otherRsa('RSA-PSS', 1024)
    const ask = await askWith({ publicKey: small.publicKey })
    const vek = await vcekWith({ signingKey: small.privateKey })
    expect(await failedWith({ ask, vek })).toEqual(['chain-algorithms', 'chain-signatures'])
  })

  test('two of one name', async () => {
    // Goal: with an older intermediate of the same name beside it, the one that signed the VEK is found, in any order.
    const { root, keys } = platform.authority
    const decoy = await reissue(root.ask, { publicKey: keys.asvk.publicKey, signingKey: keys.ark.privateKey })
    for (const chain of [
      [decoy, root.ask, root.ark],
      [root.ark, root.ask, decoy],
    ]) {
      const checks = await chainChecks({ vek: platform.vcek, chain, roots: [root] }, { report, asOf })
      expect(failures(checks)).toBe('')
    }
    const alone = await chainChecks({ vek: platform.vcek, chain: [decoy, root.ark], roots: [root] }, { report, asOf })
    expect(failed(alone)).toEqual(['chain-signatures'])
  })
})

describe('the ARK', () => {
  test('a stranger of the same name', async () => {
    // Goal: a name is no trust: a whole chain below a look-alike fails, and the look-alike beside the true one changes
    // nothing.
    const { root, keys } = platform.authority
    const stranger = await otherRsa('RSA-PSS', 2048)
    const signingKey = stranger.privateKey
    const ark = await reissue(root.ark, { publicKey: stranger.publicKey, signingKey })
    const ask = await reissue(root.ask, { signingKey })
    expect(await failedWith({ ark, ask })).toEqual(['chain-root', 'chain-names', 'vek-product'])
    expect(await failedWith({ ark })).toEqual(['chain-root', 'chain-names', 'chain-signatures', 'vek-product'])
    expect(await failedWith({ ask })).toEqual(['chain-signatures'])
    // Before and behind the true one in the order of bytes.
    for (const serial of ['01', '7fffffffffffffff']) {
      const other = await reissue(root.ark, { publicKey: stranger.publicKey, signingKey, serial })
      const chain = [other, root.ask, root.ark]
      const beside = await chainChecks({ vek: platform.vcek, chain, roots: [root] }, { report, asOf })
      expect(failures(beside)).toBe('')
    }
    // The same key and names, signed anew: not the pinned bytes.
    const again = await reissue(root.ark, { signingKey: keys.ark.privateKey })
    expect(await failedWith({ ark: again })).toEqual(['chain-root', 'chain-names', 'vek-product'])
  })

  test('no trusted root at all', async () => {
    // Goal: an empty list of roots trusts nobody.
    const { root } = platform.authority
    const chain = [root.ask, root.ark]
    expect(failed(await chainChecks({ vek: platform.vcek, chain, roots: [] }, { report, asOf }))).toContain(
      'chain-root',
    )
    expect(failed(await chainChecks({ vek: platform.vcek, roots: [] }, { report, asOf }))).toEqual([
      'chain-certificates',
    ])
  })

  test('a trusted root that cannot be read', async () => {
    // Goal: a broken root of the relying party's is a failed check, not an exception.
    const { root } = platform.authority
    const broken = { ...root, ark: 'not a certificate' }
    const prepared = await prepareChain({ vek: platform.vcek, roots: [broken] })
    expect(failed(prepared.checks)).toEqual(['chain-certificates'])
  })

  test('out of its time', async () => {
    // Goal: the validity of a trusted ARK counts too.
    const { root, keys } = platform.authority
    const notAfter = new Date(asOf.getTime() - 1000)
    const ark = await reissue(root.ark, { notAfter, signingKey: keys.ark.privateKey })
    const checks = await chainChecks({ vek: platform.vcek, roots: [{ ...root, ark }] }, { report, asOf })
    expect(failures(checks)).toContain('ARK expired')
  })

  test('that may not sign CRLs', async () => {
    // Goal: an ARK has both rights that AMD gives it.
    const { keys } = platform.authority
    const name = simulatedName('ARK-Genoa')
    const { publicKey, privateKey: signingKey } = keys.ark
    const ark = await forge({ subject: name, issuer: name, publicKey, signingKey, extensions: AUTHORITY.intermediate })
    const checks = await chainChecks(
      { vek: platform.vcek, roots: [{ ...platform.authority.root, ark }] },
      { report, asOf },
    )
    expect(failed(checks)).toEqual(['chain-authority'])
  })
})
