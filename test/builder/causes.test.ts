import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { resolveFailure } from '../../src/builder/cargo/causes.plan.ts'
import { exitText } from '../../src/builder/failure.ts'
import { fetchFailure, mayPass } from '../../src/builder/source/clone.plan.ts'
import { readSubmodules } from '../../src/builder/source/clone.ts'

const url = new URL('https://git.example/a.git')

// Goal: each mistake that people make has a message with its cause and what to do. The outputs are those of cargo 1.95
// and git 2.39.
describe('causes', () => {
  test.each([
    [
      'a lock that does not match',
      'error: cannot update the lock file /build/source/Cargo.lock because --locked was passed to prevent this',
      [],
      /^source_invalid: Cargo.lock does not match Cargo.toml; run `cargo update --workspace`/,
    ],
    [
      'a missing submodule',
      'error: failed to load manifest for dependency `x`\n\nCaused by:\n  failed to read `/build/source/x/Cargo.toml`',
      ['x'],
      /^source_invalid: submodules are missing: "x"; run `git submodule update --init --recursive`/,
    ],
    [
      'a submodule that the build does not need',
      'error: no matching package named `serde` found\nlocation searched: crates.io index\noffline mode was requested',
      ['docs/theme'],
      /^build_failed: cargo cannot resolve the packages of Cargo.lock: error: no matching package/,
    ],
    [
      'a manifest that is not there',
      'error: failed to load manifest for workspace member `/build/source/b`',
      [],
      /^source_invalid: cargo cannot read a Cargo.toml of the source: /,
    ],
    [
      'settings that hold a path as a text',
      'error: failed to merge key `env` between /build/source/.cargo/config.toml and /build/resolve.toml',
      [],
      /^source_invalid: .cargo\/config.toml: write PATH and variables that begin with LD_ as tables in `\[env\]`/,
    ],
    ['anything else', 'error: something new', [], /^build_failed: cargo cannot resolve .*: error: something new$/],
  ])('of cargo: %s', (_, output, missing, why) => {
    const { errorType, message } = resolveFailure(output, missing)
    expect(`${errorType}: ${message}`).toMatch(why)
  })

  const noRef = "fatal: couldn't find remote ref abc1234"
  test.each([
    ['a short commit', 'abc1234', noRef, false, /^source_unreachable: .*; a commit needs 40 hexadecimal digits; /],
    [
      'no such branch',
      'mian',
      "fatal: couldn't find remote ref mian",
      false,
      /no branch, tag or commit mian; .*ls-remote/,
    ],
    [
      'a commit that is gone',
      'a'.repeat(40),
      'fatal: remote error: upload-pack: not our ref aaaa',
      false,
      /no branch, tag or commit aaaa/,
    ],
    [
      'a refused host',
      null,
      'fatal: Received HTTP code 403 from proxy after CONNECT',
      false,
      /that the operator allows its host/,
    ],
    [
      'a private repository',
      null,
      "fatal: could not read Username for 'https://git.example'",
      false,
      /the repository is public/,
    ],
    [
      'a broken object',
      null,
      'error: object abc: hasDotgit: contains .git',
      false,
      /^source_invalid: .*git refuses an object/,
    ],
    [
      'a connection that broke',
      null,
      'fatal: unable to access: Recv failure: Connection reset by peer',
      true,
      /check URL and ref/,
    ],
    ['a server in trouble', null, 'fatal: The requested URL returned error: 503', true, /check URL and ref/],
  ])('of git: %s', (_, ref, output, isRepeated, why) => {
    const { errorType, message } = fetchFailure(url, ref, 128, output)
    expect(`${errorType}: ${message}`).toMatch(why)
    expect(mayPass(output)).toBe(isRepeated)
  })

  test.each([
    [101, 'exit code 101'],
    [137, 'ended by signal 9, usually because it ran out of memory; the limit is 1024 bytes'],
    [139, 'ended by signal 11'],
    [255, 'exit code 255'],
  ])('of an end with %d', (code, text) => expect(exitText(code, { memoryBytes: 1024 })).toBe(text))
})

// Goal: whatever stands where .gitmodules would is no fault of the builder, and nothing large is read.
test('a .gitmodules that is not a small file', () => {
  const dir = fs.mkdtempSync('/tmp/strongroom-gitmodules-')
  const at = join(dir, '.gitmodules')
  const text = 'path = a\n'
  const cases: [string, () => void, string[]][] = [
    ['none', () => {}, []],
    ['a file', () => fs.writeFileSync(at, text), ['a']],
    ['a file of 64 KiB', () => fs.writeFileSync(at, text.padEnd(64 * 1024, '#')), ['a']],
    ['a larger file', () => fs.writeFileSync(at, text.padEnd(64 * 1024 + 1, '#')), []],
    ['a directory', () => fs.mkdirSync(at), []],
    ['a ring of links', () => fs.symlinkSync('.gitmodules', at), []],
  ]
  try {
    for (const [what, make, paths] of cases) {
      make()
      expect([what, readSubmodules(dir, 8).map(({ path }) => path)]).toEqual([what, paths])
      fs.rmSync(at, { recursive: true, force: true })
    }
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
})
