// Goal: versions are chosen anew when somebody asks and not otherwise, from no older state of the archive, and aloud.

import { describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ImageFault, type ImageFaultCode } from '../../../scripts/image/image-fault.ts'
import { type LockedRelease, readRelease, refuseOlder, releaseLines } from '../../../scripts/image/release.ts'
import { buildRelocking, type RelockWhen, relockWhen } from '../../../scripts/image/relock-when.ts'
import { root } from '../../meta/tree.ts'

const fields = `Origin: Debian
Suite: testing
Codename: forky
Date: Fri, 30 Oct 2026 08:08:01 UTC
Valid-Until: Fri, 06 Nov 2026 08:08:01 UTC
SHA256:
 0000 1 main/binary-amd64/Packages`
const signed = (text: string) =>
  `-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n${text}\n-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n`
const testing = { archive: 'debian', suite: 'testing' } as const
const locked: LockedRelease = { ...testing, codename: 'forky', date: '2026-10-30T08:08:01Z' }

describe('a Release', () => {
  // Goal: date and codename are read, from a clear-signed file and from a plain one.
  test('is read', () => {
    const release = { ...locked, validUntil: '2026-11-06T08:08:01Z' }
    expect(readRelease(signed(fields), testing)).toEqual(release)
    expect(readRelease(`${fields}\n`, testing)).toEqual(release)
    expect(readRelease(fields, { archive: 'debian', suite: 'forky' }).suite).toBe('forky')
    expect(readRelease(fields.replace(/Valid.*\n/, ''), testing).validUntil).toBeNull()
  })

  // Goal: nothing outside of the signature, and no other suite that the archive has signed too, passes for it.
  test.each([
    ['another suite', signed(fields), { archive: 'debian', suite: 'trixie' } as const],
    ['no date', signed(fields.replace(/Date.*\n/, '')), testing],
    ['a date that is none', signed(fields.replace('30 Oct 2026', 'soon')), testing],
    ['fields before the signed part', `${fields}\n${signed('Suite: other\nDate: x')}`, testing],
    ['fields after the signed part', `${signed('Suite: other\nDate: x')}${fields}\n`, testing],
    [
      'fields in the armor headers',
      signed('Suite: other').replace('Hash: SHA256', fields.replace(/\nSHA256[\s\S]*/, '')),
      testing,
    ],
    ['nothing', '', testing],
  ])('with %s is refused', (_name, text, asked) => {
    expect(() => readRelease(text, asked)).toThrow(ImageFault)
  })

  // Goal: a mirror that is held back takes nobody to a state older than the lock's; the same or a newer state passes.
  test('that is older than the lock is refused', () => {
    const at = (date: string): LockedRelease => ({ ...locked, date })
    expect(() => refuseOlder([locked], [at('2026-10-30T08:08:00Z')])).toThrow(
      'debian testing: Release of 2026-10-30T08:08:00Z, the lock was made from 2026-10-30T08:08:01Z',
    )
    expect(() => refuseOlder([at('2027-01-01T00:00:00Z')], [at('2026-12-31T23:59:59Z')])).toThrow(ImageFault)
    refuseOlder([locked], [locked])
    refuseOlder([locked], [at('2026-10-30T08:08:02Z')])
    // One suite's date says nothing of another's.
    refuseOlder([locked], [{ ...at('2020-01-01T00:00:00Z'), archive: 'debian-security', suite: 'trixie-security' }])
  })

  // Goal: whoever relocks sees from when the archive's state is, another codename, and that its time is over.
  test('is named before anything changes', () => {
    const nowMs = Date.parse('2026-11-21T00:00:00Z')
    const next = { ...testing, codename: 'duke', date: '2026-11-20T00:00:00Z', validUntil: '2026-11-27T00:00:00Z' }
    expect(releaseLines([locked], [next, { ...locked, validUntil: '2026-11-06T08:08:01Z' }], nowMs)).toEqual([
      'debian testing: forky 2026-10-30T08:08:01Z -> duke 2026-11-20T00:00:00Z',
      'debian testing: forky 2026-10-30T08:08:01Z -> forky 2026-10-30T08:08:01Z; ITS TIME ENDED 2026-11-06T08:08:01Z: the mirror may be held back',
    ])
    expect(releaseLines([], [next], nowMs)).toEqual(['debian testing: duke 2026-11-20T00:00:00Z'])
  })
})

describe('a build', () => {
  /** A build that fails with this code until the lock is new. */
  async function attempt(when: RelockWhen, code: ImageFaultCode) {
    const done: string[] = []
    const build = async () => {
      done.push('build')
      if (!done.includes('relock')) throw new ImageFault(code, 'the mirror no longer has: ovmf 1')
      return '/image'
    }
    const relock = async () => {
      done.push('relock')
      return ['ovmf: 1 -> 2']
    }
    const result = await buildRelocking({ when, build, relock, report: line => done.push(line) }).catch(String)
    return [...done, result]
  }
  const changed = ['ovmf: 1 -> 2', '*** THE LOCK HAS CHANGED: MEASUREMENTS CHANGE TOO ***']
  const gone = 'the mirror no longer has: ovmf 1'

  // Goal: unasked, a build whose packages are gone says which and ends; nothing else than gone packages locks anew.
  test('locks anew only when asked, and says what it changes', async () => {
    expect(await attempt('never', 'package_gone')).toEqual(['build', `ImageFault: ${gone}`])
    expect(await attempt('when_gone', 'package_gone')).toEqual([
      ...['build', `${gone}; STRONGROOM_RELOCK=1: locking anew`, 'relock', ...changed, 'build', '/image'],
    ])
    expect(await attempt('when_gone', 'digest_mismatch')).toEqual(['build', `ImageFault: ${gone}`])
    expect(await attempt('now', 'package_gone')).toEqual(['relock', ...changed, 'build', '/image'])
  })

  // Goal: asking is one flag or one value; anything else is a mistake and not a yes.
  test('is asked by --relock or by STRONGROOM_RELOCK=1', () => {
    expect([relockWhen(false, undefined), relockWhen(false, ''), relockWhen(false, '1')]).toEqual([
      ...(['never', 'never', 'when_gone'] as const),
    ])
    expect([relockWhen(true, undefined), relockWhen(true, '1')]).toEqual(['now', 'now'])
    for (const value of ['0', 'true', 'no']) expect(() => relockWhen(false, value)).toThrow(/set it to 1/)
  })

  // Goal: only the continuous integration relocks by itself; demonstration and tests build what is locked.
  test('is asked by nobody but .ci/run', () => {
    const found = Bun.spawnSync(['grep', '-rlE', "RELOCK=1|--relock'", '.ci', 'scripts', 'test', 'package.json'], {
      cwd: root,
    })
    const askers = found.stdout
      .toString()
      .trim()
      .split('\n')
      .filter(path => !path.endsWith('relock.test.ts'))
    expect(
      askers.filter(path => /export STRONGROOM_RELOCK=1|'--relock'/.test(readFileSync(join(root, path), 'utf8'))),
    ).toEqual(['.ci/run'])
  })
})
