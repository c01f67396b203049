// Goal: `strongroom verify` judges every real report rightly, in lines, documents and exit codes.

import { afterAll, describe, expect, test } from 'bun:test'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { guidBytes } from '../../../src/attest/encoding/guid.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { type Policy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { fromBase64, fromHex } from '../../../src/base/bytes.ts'
import { checksOf, expectUsageError, main, run, runHere, runJson, vectors } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-verify-'))
afterAll(() => rmSync(dir, { recursive: true }))

const reports = join(vectors, 'reports')
const milan = join(reports, 'milan-v3.bin')
const milanChain = join(reports, 'milan-v3.chain.pem')
/** So that no verdict here changes with the day. */
const asOf = ['--as-of', '2026-06-01T00:00:00Z']

/** Real reports, of which these tests pin one thing at a time. */
const unpinned = ['--any-measurement', '--any-vmpl', '--any-crl', '--any-tcb']

function report(name: string, vek: string, ...more: string[]): string[] {
  return ['verify', 'report', '--report', join(reports, name), '--vek', join(reports, vek), ...unpinned, ...more]
}

function file(name: string, content: string | Uint8Array): string {
  const path = join(dir, name)
  writeFileSync(path, content)
  return path
}

function policyFile(name: string, changes: Partial<Policy> = {}): string {
  return file(name, JSON.stringify(encodePolicy({ ...strictPolicy(), ...changes })))
}

function bytesOf(hex: string): Uint8Array {
  return fromHex(hex) ?? new Uint8Array(0)
}

const expected: { report: string; product: string; measurement: string; report_data: string }[] = JSON.parse(
  readFileSync(join(reports, 'expected.json'), 'utf8'),
)
const expectedMilan = expected.find(item => item.report === 'milan-v3.bin')

const GOOD: [string, string[]][] = [
  ['milan-v2.bin', report('milan-v2.bin', 'milan-v2.vcek.der', '--product', 'milan', ...asOf)],
  ['milan-v2.bin', report('milan-v2.bin', 'milan-v2.vcek.der', ...asOf)],
  ['milan-v3.bin', report('milan-v3.bin', 'milan-v3.chain.pem', ...asOf)],
  ['milan-v3.bin', report('milan-v3.bin', 'milan-v3.chain.pem', '--chain', milanChain, '--product', 'milan', ...asOf)],
  ['genoa-v3.bin', report('genoa-v3.bin', 'genoa-v3.chain.pem', ...asOf)],
  ['genoa-v5.bin', report('genoa-v5.bin', 'genoa-v5.chain.pem', ...asOf)],
  ['turin-v5.bin', report('turin-v5.bin', 'turin-v5.chain.pem', ...asOf)],
  ['milan-v3-vlek.bin', report('milan-v3-vlek.bin', 'milan-v3-vlek.vlek.der', '--as-of', '2025-06-01T00:00:00Z')],
]

test('goal: every valid report of real hardware passes, and the document repeats what it says', async () => {
  const answers = await Promise.all(GOOD.map(([, argv]) => runJson(...argv)))
  for (const [index, { code, document }] of answers.entries()) {
    const [name] = GOOD[index] ?? []
    const known = expected.find(item => item.report === name)
    expect([name, code, checksOf(document, 'FAIL')]).toEqual([name, 0, []])
    expect(document).toMatchObject({
      ok: true,
      simulated: false,
      product: known?.product,
      report: { measurement: known?.measurement, report_data: known?.report_data },
    })
  }
})

function withoutWaiver(flag: string): string[] {
  return report('milan-v3.bin', 'milan-v3.chain.pem', ...asOf).filter(text => text !== flag)
}

const BAD: [string, string[], string[]][] = [
  [
    'a VLEK after its time',
    report('milan-v3-vlek.bin', 'milan-v3-vlek.vlek.der', '--as-of', '2026-06-01T00:00:00Z'),
    ['chain-validity'],
  ],
  [
    'a VCEK with a damaged hwID',
    report('milan-v2.bin', 'bad-vcek-new.der', '--product', 'milan', ...asOf),
    ['vek-certificate'],
  ],
  [
    'a VCEK with a broken signature, of another chip',
    report('milan-v2.bin', 'bad-vcek-legacy.der', '--product', 'milan', ...asOf),
    ['chain-signatures', 'vek-chip-id', 'vek-tcb', 'report-signature'],
  ],
  [
    'another product than the report says',
    report('milan-v3.bin', 'milan-v3.chain.pem', '--product', 'genoa', ...asOf),
    ['report-product', 'vek-product'],
  ],
  [
    'report data that are not there',
    report('milan-v3.bin', 'milan-v3.chain.pem', '--report-data', 'ab'.repeat(64), ...asOf),
    ['report-data-expected'],
  ],
  ['no CRL, not waived', withoutWaiver('--any-crl'), []],
  ['no measurement, not waived', withoutWaiver('--any-measurement'), ['pin-measurement']],
  ['firmware below the floor, not waived', withoutWaiver('--any-tcb'), ['tcb-floor-snp', 'tcb-floor-launch-snp']],
  [
    'another VMPL than 0, not waived',
    report('milan-v3-vlek.bin', 'milan-v3-vlek.vlek.der', '--as-of', '2025-06-01').filter(
      text => text !== '--any-vmpl',
    ),
    ['vmpl'],
  ],
  [
    'a VEK that is none',
    ['verify', 'report', '--report', milan, '--vek', milan, ...unpinned, ...asOf],
    ['vek-certificate'],
  ],
  [
    'a report that is none',
    ['verify', 'report', '--report', milanChain, '--vek', milanChain, ...unpinned, ...asOf],
    ['report-form', 'report-format', 'vek-product'],
  ],
]

/** Genuine ones, and ones that nobody can judge. */
const EXITS: Readonly<Record<string, readonly [code: number, failed: string]>> = {
  'no CRL, not waived': [2, 'input'],
  'no measurement, not waived': [6, 'policy'],
  'firmware below the floor, not waived': [6, 'policy'],
  'another VMPL than 0, not waived': [6, 'policy'],
  'a VCEK with a damaged hwID': [2, 'input'],
  'a VEK that is none': [2, 'input'],
  'a report that is none': [2, 'input'],
}

test('goal: every other report fails where it is bad, and the exit code tells evidence from policy from input', async () => {
  const answers = await Promise.all(BAD.map(([, argv]) => runJson(...argv)))
  for (const [index, { code, document }] of answers.entries()) {
    const [what, , failed] = BAD[index] ?? []
    expect([what, code, document.failed]).toEqual([what, ...(EXITS[what ?? ''] ?? [1, 'evidence'])])
    expect([what, document.ok, document.simulated]).toEqual([what, false, false])
    expect([what, checksOf(document, 'FAIL')]).toEqual([what, failed])
  }
})

test('goal: the report inside an Azure HCL report is found, and fails with the certificate of another chip', async () => {
  const azure = report('wrong-chip.hcl.bin', 'wrong-chip.certs.pem', '--product', 'milan', ...asOf)
  const { code, document } = await runJson(...azure)
  expect([code, checksOf(document, 'FAIL')]).toEqual([1, expect.arrayContaining(['report-signature'])])
  expect(document.checks).toContainEqual({
    name: 'report-form',
    result: 'PASS',
    outcome: 'pass',
    reason: 'an SNP report inside an Azure HCL report',
    required: true,
  })
  expect(checksOf(document, 'PASS')).toContain('chain-signatures')
})

test('goal: with --verbose people get one line for each check, the verdict last, and no colour in a pipe', async () => {
  const good = await run(...report('milan-v3.bin', 'milan-v3.chain.pem', ...asOf, '--verbose'))
  const lines = good.stdout.trimEnd().split('\n')
  for (const line of lines.slice(0, -1)) expect(line).toMatch(/^(?:PASS|NOT CHECKED) [a-z0-9-]+: \S/)
  expect(lines.at(-1)).toMatch(/^VERDICT: PASS: \d+ passed, 0 failed, \d+ not checked$/)
  expect(lines).toContain('PASS guest-policy-debug: bit 19 is not set')
  expect(lines).toContain("NOT CHECKED measurement: the policy has 'any'")
  expect(lines).toContain(
    `NOT CHECKED pin-measurement: accepted any measurement: you asked with --any-measurement; it is ${expectedMilan?.measurement}`,
  )
  expect(good.stdout).not.toContain('\u001b')
  expect(good.stdout).not.toContain('SIMULATED')
  expect(good.stderr).toBe('')

  const bad = await run(...withoutWaiver('--any-crl'), '--verbose')
  expect(bad.stdout).toContain(
    'NOT CHECKED chain-revocation: no CRL was given; name one with --crl, or accept evidence without one with --any-crl (required)\n',
  )
  expect(bad.stdout).toMatch(/\nVERDICT: FAIL: \d+ passed, 0 failed, \d+ not checked \(1 required\)\n$/)
})

test('goal: the summary is short, whatever the verdict, and ends with how to see the rest', async () => {
  const found = await Promise.all([...GOOD, ...BAD].map(([, argv]) => runHere(argv)))
  for (const { code, stdout, stderr } of found) {
    const lines = stdout.trimEnd().split('\n')
    expect([lines[0], lines.length <= 15, stderr]).toEqual([`VERDICT: ${code === 0 ? 'PASS' : 'FAIL'}`, true, ''])
    expect(lines.at(-1)).toMatch(
      /^\d+ checks: \d+ passed, \d+ failed, (?:\d+ required but not made, \d+ not required|\d+ not made); --verbose prints each$/,
    )
    expect(lines[1]).toStartWith(code === 0 ? "rests on     root: AMD's pinned root for " : 'failed       ')
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(600)
    // Also where both were waived: VMPL and firmware that a verdict rests on are in it.
    if (code !== 0) continue
    expect(stdout).toMatch(/^ +VMPL: 0$|any VMPL: you asked with --any-vmpl; it is \d$/m)
    expect(stdout).toMatch(/ asked with --any-tcb; it is .*snp \d+, microcode \d+$/m)
  }
  const [, bad] = [found[0], await runHere(withoutWaiver('--any-tcb'))]
  expect(bad.stdout).toContain(
    'failed       tcb-floor-snp and 1 more: snp 24 is less than 27, which AMD-SB-3023 (CVE-2025-48514, SEV-ES guests beside SNP) requires\n',
  )
})

test('goal: a genuine Milan report passes with the floors waived that it misses, by name, and the verdict says why', async () => {
  const argv = withoutWaiver('--any-tcb')
  const why = ['--waive-floor', 'snp=old host', '--waive-floor', 'launch-snp=old host, launched in May']
  const { code, stdout } = await runHere([...argv, ...why])
  expect(code).toBe(0)
  expect(stdout).toContain("firmware below AMD's fixes in snp (old host), launch-snp (old host, launched in May)")
  expect(stdout).toContain('not checked  tcb-floor-snp: waived (old host): snp 24 is less than 27, which AMD-SB-3023')
  expect((await runHere([...argv, '--waive-floor', 'microcode=old host'])).code).toBe(6)
  for (const [wrong, words] of [
    [['--waive-floor', 'bios=old'], 'there is no part "bios" of the floors; there are snp, microcode'],
    [['--waive-floor', 'snp'], 'it is not part=reason'],
    [['--waive-floor', 'snp= '], 'snp: say why in one line'],
    [['--waive-floor', 'snp=a', '--waive-floor', 'snp=b'], 'snp is waived twice'],
    [['--waive-floor', 'snp=a', '--any-tcb'], '--any-tcb leaves out every floor'],
  ] as const) {
    const { code, stderr } = await runHere([...argv, ...wrong])
    expect([code, stderr]).toEqual([2, expect.stringContaining(words)])
  }
})

test("goal: a policy's certificate entries are looked for in the table that is given, and missed without one", async () => {
  const vcek = '63da758d-e664-4564-adc5-f4b93be8accd'
  const table = new Uint8Array(80)
  table.set(guidBytes(vcek))
  new DataView(table.buffer).setUint32(16, 48, true)
  new DataView(table.buffer).setUint32(20, 32, true)
  const policy = policyFile('entries.json', { certificateEntries: [vcek] })
  const argv = report('genoa-v5.bin', 'genoa-v5.chain.pem', ...asOf, '--policy', policy)
  const given = (bytes: Uint8Array) => [...argv, '--certificate-table', file('table.bin', bytes)]
  expect((await runHere(argv)).stdout).toContain('certificate-entries: no certificate table was given')
  expect((await runHere(given(table))).code).toBe(0)
  const other = table.with(0, 0)
  expect((await runHere(given(other))).stdout).toContain(`certificate-entries: the certificate table lacks ${vcek}`)
  const short = await runHere(given(table.subarray(0, 40)))
  expect([short.code, short.stdout]).toEqual([2, expect.stringContaining('certificate-table: ')])
})

test('goal: a terminal gets the words in colour', async () => {
  const argv = withoutWaiver('--any-crl')
  const { stdout } = await runHere([...argv, '--verbose'], { isTerminal: true })
  expect(stdout).toContain('\u001b[32mPASS\u001b[0m report-signature: ')
  expect(stdout).toContain('\u001b[33mNOT CHECKED\u001b[0m chain-revocation: ')
  expect(stdout).toContain('\u001b[31mFAIL\u001b[0m: ')
  const summary = await runHere(argv, { isTerminal: true })
  expect(summary.stdout).toStartWith('\u001b[1mVERDICT:\u001b[0m \u001b[31mFAIL\u001b[0m\n')
})

test('goal: old floors are said to be old in the summary, whatever else it says', async () => {
  const late = report('genoa-v5.bin', 'genoa-v5.chain.pem', '--as-of', '2027-06-01').filter(
    text => text !== '--any-tcb',
  )
  const { code, stdout } = await runHere(late)
  expect(code).toBe(0)
  expect(stdout).toContain(
    "not checked  tcb-floor-age: the TCB floors that this verifier ships are 188 days old; look for a newer release or AMD's bulletins\n",
  )
})

test('goal: --as-of is now unless said, and takes a day as its midnight', async () => {
  const argv = report('milan-v3.bin', 'milan-v3.chain.pem')
  const before = new Date().toISOString()
  const [now, day] = await Promise.all([runJson(...argv), runJson(...argv, '--as-of', '2026-06-01')])
  expect([String(now.document.as_of) >= before, String(now.document.as_of) <= new Date().toISOString()]).toEqual([
    true,
    true,
  ])
  expect(day.document.as_of).toBe('2026-06-01T00:00:00.000Z')
  const early = await runJson(...argv, '--as-of', '2000-01-01')
  expect([early.code, checksOf(early.document, 'FAIL')]).toEqual([1, ['chain-validity']])
})

describe('policies', () => {
  test('goal: the measurement, the report data and the VMPL that a policy names have to be those of the report', async () => {
    const measurement = bytesOf(expectedMilan?.measurement ?? '')
    const named = { measurements: [measurement], reportData: bytesOf(expectedMilan?.report_data ?? '') }
    const [good, bad, vmpl] = await Promise.all([
      run(
        ...report('milan-v3.bin', 'milan-v3.chain.pem', '--policy', policyFile('good.json', named)),
        ...['--report-data', (expectedMilan?.report_data ?? '').toUpperCase(), ...asOf],
      ),
      runJson(
        ...report('milan-v3.bin', 'milan-v3.chain.pem', ...asOf, '--policy'),
        policyFile('bad.json', { measurements: [measurement.toReversed()] }),
      ),
      runJson(
        ...report('milan-v3-vlek.bin', 'milan-v3-vlek.vlek.der', '--as-of', '2025-06-01', '--policy'),
        policyFile('strict.json'),
      ),
    ])
    expect([good.code, good.stderr]).toEqual([0, ''])
    expect(good.stdout).toContain(`             measurement: ${expectedMilan?.measurement}\n`)
    expect([bad.code, checksOf(bad.document, 'FAIL')]).toEqual([6, ['measurement']])
    expect([vmpl.code, checksOf(vmpl.document, 'FAIL')]).toEqual([6, ['vmpl']])
  })

  test('goal: the printed example is a policy, and every field of it is in the printed schema', async () => {
    const [example, schema] = await Promise.all([run('verify', 'policy-example'), runJson('verify', 'policy-schema')])
    expect([example.code, schema.code]).toEqual([0, 0])
    const fields = Object.keys(JSON.parse(example.stdout))
    expect(schema.document).toMatchObject({ required: fields, additionalProperties: false })
    expect(Object.keys(Object(schema.document.properties)).slice(-4).join()).toBe('egress,secrets,published,loginKeys')
    expect((await run('verify', 'policy-schema')).stdout).toBe(`${JSON.stringify(schema.document, null, 2)}\n`)
    const path = file('example.json', example.stdout)
    const used = await run(...report('genoa-v5.bin', 'genoa-v5.chain.pem', ...asOf, '--policy', path))
    expect(used.code).toBe(0)
    // Its floors hold although the ones that are built in are waived.
    const old = await runJson(...report('milan-v3.bin', 'milan-v3.chain.pem', ...asOf, '--policy', path))
    expect([old.code, checksOf(old.document, 'FAIL')]).toEqual([6, ['minimum-tcb-snp', 'minimum-launch-tcb-snp']])
    const reasons = (old.document.checks as { result: string; reason: string }[]).filter(made => made.result === 'FAIL')
    expect(reasons.map(({ reason }) => reason)).toEqual([
      expect.stringMatching(/^the policy's minimumTcb[.]milan[.]snp: \d+ is less than \d+; change it in the policy$/),
      expect.stringMatching(
        /^the policy's minimumLaunchTcb[.]milan[.]snp: \d+ is less than \d+; change it in the policy$/,
      ),
    ])
    expect(JSON.parse(example.stdout).platformInfo.aliasCheck).toBe('required')
  })

  test('goal: a policy with a wrong, missing or unknown field is refused by its name', async () => {
    const good = encodePolicy(strictPolicy())
    const { vmpls: _, ...missing } = good
    const { format: __, ...formless } = good
    const { guestPolicy: ___, ...bitless } = good
    const policies: [string, unknown, string][] = [
      ['wrong.json', { ...good, vmpls: [4] }, 'policy.vmpls[0]: 4 is not an integer from 0 to 3; for example 0'],
      ['missing.json', missing, 'policy.vmpls: it is missing; write what you accept, or "any" to skip this check'],
      ['formless.json', formless, 'policy.format: it is missing; write "strongroom/snp-policy/v1"'],
      ['bitless.json', bitless, 'policy.guestPolicy: it is missing; copy it from a policy that is whole'],
      ['unknown.json', { ...good, measurment: 'any' }, 'policy.measurment: unknown field; did you mean measurements?'],
      ['list.json', [], 'policy: [] is not an object; for example { "format": '],
    ]
    for (const [name, policy, message] of policies) {
      const path = file(name, JSON.stringify(policy))
      await expectUsageError(
        report('milan-v3.bin', 'milan-v3.chain.pem', '--policy', path),
        `--policy ${path}: ${message}`,
      )
    }
    // JSON.parse takes the last: this one would let a guest with debugging pass.
    const text = JSON.stringify(good).replace('"debug":"forbidden"', '"debug":"forbidden","debug":"any"')
    const twice = file('twice.json', text)
    await expectUsageError(
      report('milan-v3.bin', 'milan-v3.chain.pem', '--policy', twice),
      `--policy ${twice}: the file has the field "debug" twice`,
    )
    await expectUsageError(report('milan-v3.bin', 'milan-v3.chain.pem', '--policy', milanChain), 'not JSON')
    await expectUsageError(report('milan-v3.bin', 'milan-v3.chain.pem', '--policy', milan), 'not UTF-8')
  })
})

test('goal: usage errors and unreadable input exit 2 and name the option', async () => {
  const missing = join(dir, 'missing')
  const huge = file('huge', '')
  truncateSync(huge, 2 ** 40)
  const argv = report('milan-v3.bin', 'milan-v3.chain.pem')
  const errors: [string[], string][] = [
    [['verify', 'report', '--vek', milanChain], "required option '--report <file>' not specified"],
    [['verify', 'report', '--report', milan], '--vek is missing'],
    [['verify', 'report', '--report', missing, '--vek', milanChain], `--report ${missing}: there is no such file`],
    [['verify', 'report', '--report', dir, '--vek', milanChain], `--report ${dir}: it is a directory`],
    [
      ['verify', 'report', '--report', huge, '--vek', milanChain],
      `--report ${huge}: 1099511627776 bytes, at most 1048576`,
    ],
    [['verify', 'report', '--report', '/dev/zero', '--vek', milanChain], '--report /dev/zero: more than 1048576 bytes'],
    [['verify', 'report', '--report', milan, '--vek', huge], `--vek ${huge}: 1099511627776 bytes`],
    [[...argv, '--crl', missing], `--crl ${missing}: there is no such file`],
    [[...argv, '--chain', missing], `--chain ${missing}: there is no such file`],
    [[...argv, '--policy', missing], `--policy ${missing}: there is no such file`],
    [[...argv, '--policy', huge], `--policy ${huge}: 1099511627776 bytes`],
    [[...argv, '--trust-simulated-root', missing], `--trust-simulated-root ${missing}: there is no such file`],
    [[...argv, '--report-data', 'abc'], "'--report-data <hex>' argument 'abc' is invalid"],
    [[...argv, '--report-data', 'zz'.repeat(64)], 'is invalid. It must be 64 bytes in hexadecimal'],
    [[...argv, '--product', 'rome'], 'Allowed choices are milan, genoa, turin'],
    [[...argv, '--nope'], "unknown option '--nope'"],
    ...['yesterday', '2025-02-30', '2025-06-01T00:00:00', '2025-06-01T25:00:00Z', '1748736000'].map(
      (time): [string[], string] => [[...argv, '--as-of', time], `'--as-of <time>' argument '${time}' is invalid`],
    ),
  ]
  for (const [line, message] of errors) await expectUsageError(line, message)
  await expectUsageError(['verify', 'nope'], "unknown command 'nope'")
})

test('goal: the remedy fits the input: a path that is wrong, a file that is wrong, an option', async () => {
  const argv = report('milan-v3.bin', 'milan-v3.chain.pem')
  const remedies: [string[], string][] = [
    [[...argv, '--policy', join(dir, 'missing')], 'check the path'],
    [[...argv, '--policy', dir], 'name a file'],
    [[...argv, '--policy', milan], 'check that this is the right file'],
    [[...argv, '--policy', file('cut.json', '{')], 'correct the JSON in the file'],
    [[...argv, '--policy', file('empty.json', '{}')], 'correct the input, or name another file'],
    [[...argv, '--as-of', 'yesterday'], 'see `strongroom --help`, or --help of the command'],
    [['measure', 'ovmf'], 'add --firmware'],
    [['config', 'check', '--config', join(dir, 'missing')], 'check the path; see --config'],
  ]
  for (const [line, remedy] of remedies) {
    const { code, stderr } = await runHere(line)
    expect([line, code, stderr.trimEnd().split('\n').at(-1)]).toEqual([line, 2, `remedy: ${remedy}`])
  }
})

test('goal: pipes and files beside the vectors are read as well', async () => {
  const copy = join(dir, 'copy.bin')
  copyFileSync(milan, copy)
  const piped = Bun.spawn(
    [
      'sh',
      '-c',
      `cat "$1" | ${process.execPath} "$2" verify report --report /dev/stdin --vek "$3" --as-of 2026-06-01 ${unpinned.join(' ')}`,
      'sh',
    ].concat([copy, main, milanChain]),
    { stdout: 'pipe', stderr: 'ignore' },
  )
  expect([await piped.exited, (await piped.stdout.text()).includes('VERDICT: PASS')]).toEqual([0, true])
})

describe('ID blocks', () => {
  const auth = join(vectors, 'id-block/test_auth_block.bin')
  const block = file(
    'id-block.bin',
    fromBase64(
      'oU1jg0HlZ0Yo/h4C++3r5eWrT68d1y2JZgaOYVu5nv0T0hSzXCMXFbOOJj3GBZdFAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAAAAwAAAAAA',
    ) ?? '',
  )

  test('goal: a signed ID block passes and its key digests are printed', async () => {
    const argv = ['verify', 'id-block', '--id-block', block, '--id-auth', auth, '--require-author']
    const { code, document } = await runJson(...argv)
    expect([code, document]).toMatchObject([0, { ok: true }])
    expect(document.id_key_digest).toStartWith('59fb2c68')
    expect(document.id_key_digest).toEndWith('fe2')
    expect(document.author_key_digest).toMatch(/^eed81169.*6c5f$/)
    const text = await run(...argv)
    expect(text.stdout).toContain(`id_key_digest: ${document.id_key_digest}\n`)
    expect(text.stdout).toEndWith('VERDICT: PASS: 2 passed, 0 failed, 0 not checked\n')
  })

  test('goal: another block, half a block and no block at all are no success', async () => {
    const bytes = new Uint8Array(readFileSync(block))
    bytes[0] = 0
    const other = await runJson('verify', 'id-block', '--id-block', file('other.bin', bytes), '--id-auth', auth)
    expect([other.code, checksOf(other.document, 'FAIL')]).toEqual([1, ['id-block-signature']])
    const half = file('half.bin', bytes.subarray(48))
    expect((await run('verify', 'id-block', '--id-block', half, '--id-auth', auth)).code).toBe(2)
    await expectUsageError(['verify', 'id-block', '--id-block', auth, '--id-auth', auth], 'at most 192 are allowed')
    await expectUsageError(['verify', 'id-block', '--id-auth', auth], "required option '--id-block <file>'")
  })
})
