// Goal: `verify policy init` writes a policy that every command reads, with a comment for each field, from options or
// from the answers of a person.

import { afterAll, expect, test } from 'bun:test'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseHgxPolicy } from '../../../src/attest/nvidia/hgx/policy.ts'
import { parseGpuPolicy } from '../../../src/attest/nvidia/policy.ts'
import { parsePolicy } from '../../../src/attest/policy/policy.ts'
import { POLICY_FIELDS } from '../../../src/attest/policy/schema.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { runCli } from '../../../src/cli/index.ts'
import { readPolicyFile } from '../../../src/client/trust/trust-options.ts'
import { policyFor } from '../../../src/client/verify/policy-example.ts'
import { policyText } from '../../../src/client/verify/policy-text.ts'
import { sampleManifestText } from '../../rigs/instances/instance-attestation.ts'
import { expectUsageError, runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-policy-init-'))
afterAll(() => rmSync(dir, { recursive: true }))

const [digest, other, key, chip] = ['ab'.repeat(48), 'cd'.repeat(48), 'ef'.repeat(48), '12'.repeat(64)]

/** Runs the command with a person who types these lines; null: there is no terminal. */
async function run(argv: readonly string[], typed: readonly string[] | null = null) {
  const [out, err, asked]: [string[], string[], string[]] = [[], [], []]
  const lines = [...(typed ?? [])]
  const ask = async (prompt: string) => {
    asked.push(prompt)
    return lines.shift() ?? null
  }
  const code = await runCli(['verify', 'policy', 'init', ...argv], {
    stdout: async text => void out.push(String(text)),
    stderr: async text => void err.push(text),
    stdoutIsTerminal: false,
    stderrIsTerminal: false,
    ...(typed === null ? {} : { ask }),
    env: {},
    onSignal: () => () => {},
  })
  return { code, out: out.join(''), err: err.join(''), asked }
}

function file(name: string, content: string): string {
  writeFileSync(join(dir, name), content)
  return join(dir, name)
}

// Goal: the same policy as policy-example, and nothing less strict, from the same files.
test('options: the policy of policy-example, commented', async () => {
  const { code, out } = await run(['--image', digest, '--operator-key', key])
  expect(code).toBe(0)
  const example = await policyFor({ image: undefined, operatorKey: key })
  expect(parsePolicy(out)).toEqual(parsePolicy({ ...example, measurements: [digest] }))
  const fields = Object.entries(POLICY_FIELDS).filter(([name, field]) => name !== 'format' && !('whenMissing' in field))
  for (const [name] of fields) expect(out).toMatch(new RegExp(`\\n  // .{10,}\\n  "${name}": `))
  expect(out.split('\n').filter(line => line.length > 120)).toEqual([])
})

// Goal: policies take hexadecimal in one form, and people paste it in another.
test('hexadecimal in upper case, and with 0x', async () => {
  const given = ['--image', `0x${digest}`, '--operator-key', key.toUpperCase(), '--chips', `0X${chip.toUpperCase()}`]
  const { measurements, idKeyDigest, chipIds } = parsePolicy((await run(given)).out)
  expect([measurements, idKeyDigest, chipIds]).toEqual([
    ...[[Uint8Array.fromHex(digest)], Uint8Array.fromHex(key), [Uint8Array.fromHex(chip)]],
  ])
})

// Goal: four answers are enough; an answer that cannot be read is asked for again.
test('a person answers four questions', async () => {
  const path = join(dir, 'asked.json')
  const typed = ['no-such-image', digest, key, 'lists/chips.json', 'maybe', 'y']
  const { code, asked, err } = await run(['--out', path], typed)
  expect([code, asked.length]).toEqual([0, 6])
  expect(err).toContain('no such file')
  const { policy, chips } = await readPolicyFile(path, 'policy')
  expect(policy.measurements === 'any' ? [] : policy.measurements.map(toHex)).toEqual([digest])
  expect(policy.platformInfo.smt).toBe('forbidden')
  expect(policy.idKeyDigest).toEqual(Uint8Array.fromHex(key))
  expect(chips?.maxAgeDays).toBe(90)
  const list = JSON.parse(readFileSync(path, 'utf8').replaceAll(/^ *\/\/.*$/gm, '')).chipIds.list
  expect(join(dir, list)).toBe(join(process.cwd(), 'lists/chips.json'))
})

// Goal: empty answers write an open policy and say what stays open.
test('empty answers', async () => {
  const { code, out, err } = await run([], ['', '', '', ''])
  expect([code, parsePolicy(out).measurements, parsePolicy(out).chipIds]).toEqual([0, 'any', 'any'])
  expect(err).toContain('no image is named: every verdict fails until you name measurements')
  expect(err).toContain("any operator's host passes")
})

// Goal: without a terminal, after three bad answers, at the end of input or over an existing file nothing is written.
test('refusals', async () => {
  const path = join(dir, 'none.json')
  const alone = await run(['--out', path])
  expect([alone.code, alone.err]).toEqual([2, expect.stringContaining('name --image and --operator-key')])
  expect((await run(['--out', path], ['x', 'y', 'z'])).code).toBe(2)
  expect((await run(['--out', path], [digest])).code).toBe(2)
  expect(existsSync(path)).toBe(false)
  expect((await run(['--chips', chip, '--out', file('there.json', '{}')])).code).toBe(2)
  expect(readFileSync(join(dir, 'there.json'), 'utf8')).toBe('{}')
})

// Goal: a manifest of someone else writes no line into the policy that a person reviews.
test('names of digests that are no shapes', async () => {
  for (const shape of [
    'a/b/c/1\n  "vmpls": "any",',
    'a/b/c/1\r"vmpls"',
    'qemu/bios/\u202Ex/1',
    'any image of mine',
    'a/b/c/',
  ]) {
    const manifest = { ...JSON.parse(sampleManifestText), launchDigests: { [shape]: digest } }
    const { code, out, err } = await run(['--image', file('manifest.json', JSON.stringify(manifest))])
    expect([code, out, err]).toEqual([2, '', expect.stringContaining('is no profile/vehicle/type/vCPUs')])
  }
  const named = policyText({ measurements: [digest] }, new Map([[digest, 'x\n  "vmpls": "any",']]))
  expect(named.match(/^ *"vmpls"/gm)).toHaveLength(1)
})

// Goal: a path that ends a line for some editors is refused, and nothing is written.
test('a text that programs would read differently', async () => {
  const { code, out, err } = await run(['--operator-key', key, '--chips', 'a\u2028b.json'])
  expect([code, out, err]).toEqual([2, '', expect.stringContaining('U+2028')])
})

// Goal: a manifest's digests are named by the shape of their VM, each digest once.
test('a manifest names the shapes', async () => {
  const launchDigests = { 'qemu-kvm/bios/EPYC-v4/2': digest, 'qemu-kvm/bios/EPYC-v4/4': other, 'x/igvm/y/2': digest }
  const manifest = { ...JSON.parse(sampleManifestText), launchDigests }
  const { code, out, err } = await run(['--image', file('manifest.json', JSON.stringify(manifest)), '--smt-off'])
  expect([code, err.includes('manifest:')]).toEqual([0, false])
  expect(out).toContain(
    `    // qemu-kvm/bios/EPYC-v4/2, x/igvm/y/2\n    "${digest}",\n    // qemu-kvm/bios/EPYC-v4/4\n    "${other}"`,
  )
  expect(parsePolicy(out).platformInfo.smt).toBe('forbidden')
})

test('goal: the printed example for GPUs is a policy of both commands, and goes with no other option', async () => {
  const { code, stdout } = await runHere(['verify', 'policy-example', '--gpu'])
  expect(code).toBe(0)
  expect(parseHgxPolicy(stdout)).toMatchObject({ architectures: 'any', devtools: 'refuse' })
  expect(parseGpuPolicy(stdout)).toMatchObject({ ocspMaximumAgeSeconds: 86_400 })
  await expectUsageError(['verify', 'policy-example', '--gpu', '--tdx'], '--gpu goes with no other option')
})

test('goal: the complete example of the help is a policy for GPUs', () => {
  const page = readFileSync(join(import.meta.dir, '../../../src/cli/help/verify.md'), 'utf8')
  const [, example = ''] = /```json\n([{]\n {2}"format": "strongroom[/]gpu-policy[/]v1"[^`]+)```/.exec(page) ?? []
  expect(parseGpuPolicy(example).architectures).toEqual(['HOPPER'])
})
