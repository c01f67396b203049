// The IGVM files that a host launches from: with its ID block, written once, and none that is not to be launched.

import { describe, expect, test } from 'bun:test'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { IGVM_FIXED_HEADER, readIgvm, writeIgvm } from '../../../src/attest/igvm/file.ts'
import { finishLaunch } from '../../../src/attest/launch/finish.ts'
import { toBase64 } from '../../../src/base/bytes.ts'
import { readIgvmLaunch, signedIgvm } from '../../../src/vm/launch/igvm.plan.ts'
import { nativeHashes } from '../../../src/vm/launch/image-file.driver.ts'
import { failureOf, openLauncherBench, launchedVm as vm } from '../../rigs/launch/launcher.ts'

const { operatorKey, bench } = await openLauncherBench()

describe('an IGVM file', () => {
  test('of this host carries its ID block, since QEMU forgets that of its command line', async () => {
    // Goal: firmware is given the block that this host has signed, by the only way that reaches it.
    const { prepare } = await bench({ igvm: 'made' })
    using launch = await prepare()
    const given = await readIgvmLaunch(
      new Uint8Array(readFileSync(`/proc/self/fd/${launch.firmware.fd}`)),
      nativeHashes,
    )
    const { block, auth } = given.idBlock ?? { block: new Uint8Array(), auth: new Uint8Array() }
    expect([toBase64(block), toBase64(auth)]).toEqual([launch.signed.idBlock.block, launch.signed.idBlock.auth])
    const finished = await finishLaunch({ digest: given.digest, policy: 0x30000n, idBlock: block, idAuth: auth })
    expect([finished.ok, finished.idKeyDigest, given.policy]).toEqual([true, operatorKey.digest, 0x30000n])
  })

  test('is written once for a shape, readable to whoever QEMU runs as, and again when the image changes', async () => {
    // Goal: launches do not write files all the time, and none is launched from the file of another image.
    const { directory, written, prepare, manifest } = await bench({ igvm: 'made' })
    using first = await prepare()
    const { ino, mode } = statSync(written)
    using second = await prepare()
    expect([statSync(written).ino, mode & 0o777]).toEqual([ino, 0o444])
    expect(second.document.firmwareSha256).toBe(first.document.firmwareSha256)
    const launchDigests = { ...manifest.launchDigests, 'qemu-kvm/igvm/EPYC-v4/2': '11'.repeat(48) }
    writeFileSync(join(directory, 'manifest.json'), JSON.stringify({ ...manifest, launchDigests }))
    expect(await failureOf(prepare())).toContain('measurement')
    expect(statSync(written).ino).not.toBe(ino)
  })

  test('that has an ID block, another policy, or another layout is not launched', async () => {
    // Goal: what the configuration names is the plain file that anyone can make again.
    const { igvm, prepare, mismatchOf } = await bench({ igvm: 'named' })
    using launch = await prepare()
    const signed = readFileSync(`/proc/self/fd/${launch.firmware.fd}`)
    const plain = readFileSync(igvm)
    const { headers } = readIgvm(new Uint8Array(plain))
    const debug = headers.map(header =>
      header.kind === 'guestPolicy' ? { ...header, policy: header.policy | (1n << 19n) } : header,
    )
    writeFileSync(igvm, signed)
    expect(await failureOf(prepare())).toContain('it has an ID block')
    writeFileSync(igvm, writeIgvm({ headers: debug }))
    // The block is signed for the policy of this host.
    expect(await mismatchOf(prepare())).toContain('policy')
    writeFileSync(igvm, withLooseEnd(plain))
    expect(await failureOf(prepare())).toContain('not laid out as')
    writeFileSync(igvm, plain)
    using _ = await prepare()
  })

  test('without a guest policy is not signed, and one with several ID blocks is not read', async () => {
    // Goal: QEMU would refuse both, after the VM has taken its room; which of several blocks counts is nobody's guess.
    const { igvm, prepare } = await bench({ igvm: 'named' })
    using launch = await prepare()
    const signed = readIgvm(new Uint8Array(readFileSync(`/proc/self/fd/${launch.firmware.fd}`)))
    const { headers } = readIgvm(new Uint8Array(readFileSync(igvm)))
    const without = writeIgvm({ headers: headers.filter(({ kind }) => kind !== 'guestPolicy') })
    expect(() => signedIgvm(without, null as never)).toThrow('IGVM: no guest policy')
    const [block] = signed.headers.filter(({ kind }) => kind === 'snpIdBlock')
    if (block === undefined) throw new Error('no ID block')
    const twice = writeIgvm({ headers: [...signed.headers, block] })
    const error = await readIgvmLaunch(twice, nativeHashes).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ message: 'IGVM: several ID blocks' })
  })

  test('of many launches at once is one file, whole for each of them', async () => {
    // Goal: no launch is given the half of a file, or the file of another.
    const { launcher, prepare } = await bench({ igvm: 'made' })
    const shapes = Array.from({ length: 12 }, (_, index) => ({ ...vm, vcpus: 1 + (index % 2) }))
    const launches = await Promise.all(shapes.map(shape => prepare(shape)))
    for (const launch of launches) {
      await launcher.check('vm', launch)
      launch[Symbol.dispose]()
    }
    expect(new Set(launches.map(({ document }) => document.measurement)).size).toBe(2)
  })
})

/** The same headers, with bytes at the end that none of them names. */
function withLooseEnd(plain: Buffer): Buffer {
  const bytes = Buffer.concat([plain, Buffer.alloc(8)])
  const [sizeAt] = IGVM_FIXED_HEADER.fileBytes
  const [checksumAt] = IGVM_FIXED_HEADER.checksum
  bytes.writeUInt32LE(bytes.length, sizeAt)
  bytes.writeUInt32LE(0, checksumAt)
  const end =
    bytes.readUInt32LE(IGVM_FIXED_HEADER.headersOffset[0]) + bytes.readUInt32LE(IGVM_FIXED_HEADER.headersBytes[0])
  bytes.writeUInt32LE(Bun.hash.crc32(bytes.subarray(0, end)), checksumAt)
  return bytes
}
