import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import { readEgress, spentReason } from '../../../src/guest/egress/count.ts'
import { createEgressNotice } from '../../../src/guest/egress/notice.ts'

function place() {
  const dir = fs.mkdtempSync(join(tmpdir(), 'srt-egress-'))
  const terminals = join(dir, 'pts')
  fs.mkdirSync(terminals)
  for (const name of ['0', '7', 'ptmx']) fs.writeFileSync(join(terminals, name), '')
  const paths = { egress: join(dir, 'egress.json'), terminals }
  const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  const notice = () => createEgressNotice({ paths, owner, log: silentLogger })
  /** Text that a terminal got since the last call. */
  const shown = (name: string) => {
    const text = fs.readFileSync(join(terminals, name), 'utf8')
    fs.truncateSync(join(terminals, name))
    return text
  }
  return { paths, notice, shown, [Symbol.dispose]: () => fs.rmSync(dir, { recursive: true }) }
}

// Goal: the owner of a VM sees how much of the egress limit is used, once for each step.
test('each step of the limit is written to every terminal once, also after a restart', () => {
  using there = place()
  let notice = there.notice()
  const shownAt = (usedBytes: number, limitBytes = 5_000_000_000) => {
    notice.take({ usedBytes, limitBytes })
    const texts = [there.shown('0'), there.shown('7')]
    expect(texts[1]).toBe(texts[0] ?? '')
    return texts[0]
  }
  expect(shownAt(3_999_999_999)).toBe('')
  expect(shownAt(4_000_000_000)).toBe(
    "\r\n*** strongroom: 80 % of this instance's egress limit is used (4.00 GB of 5.00 GB, by the host's count).\r\nWhen it is spent, only SSH from outside still works: copy your work away in good time.\r\n",
  )
  expect(shownAt(4_700_000_000)).toBe('')
  notice = there.notice()
  expect(shownAt(4_710_000_000)).toBe('')
  expect(shownAt(4_750_000_000)).toContain('95 % of')
  expect(shownAt(5_000_000_000)).toContain("the egress limit of this instance, 5.00 GB, is spent by the host's count.")
  expect(shownAt(5_000_000_000)).toBe('')
  // A raised limit begins anew.
  expect(shownAt(5_000_000_000, 6_000_000_000)).toBe('')
  expect(shownAt(5_700_000_000, 6_000_000_000)).toContain('95 % of')
  // Exact in whole bytes: a hundredth of this limit, times a hundred, is more than the limit.
  expect(shownAt(3_700_348, 3_700_348)).toContain('is spent')
  expect(there.shown('ptmx')).toBe('')
})

// Goal: the endpoint can give the reason, and a broken file is no reason.
test('programs read the newest count, and why nothing leaves', () => {
  using there = place()
  expect(readEgress(there.paths)).toBeNull()
  expect(spentReason(null)).toBeNull()
  there.notice().take({ usedBytes: 7, limitBytes: 1_000 })
  expect(readEgress(there.paths)).toEqual({ usedBytes: 7, limitBytes: 1_000 })
  expect(spentReason({ usedBytes: 999, limitBytes: 1_000 })).toBeNull()
  expect(spentReason({ usedBytes: 1_000, limitBytes: 1_000 })).toContain('is spent')
  for (const text of ['', '{', '{"usedBytes":-1,"limitBytes":1}', '[]']) {
    fs.writeFileSync(there.paths.egress, text)
    expect(readEgress(there.paths)).toBeNull()
  }
})

// Goal: terminals of programs that have ended, or none, are no fault.
test('a terminal that cannot be written keeps no other from its notice', () => {
  using there = place()
  fs.rmSync(join(there.paths.terminals, '0'))
  fs.mkdirSync(join(there.paths.terminals, '0'))
  there.notice().take({ usedBytes: 9, limitBytes: 10 })
  expect(there.shown('7')).toContain('80 % of')
  // No terminals at all.
  fs.rmSync(there.paths.terminals, { recursive: true })
  there.notice().take({ usedBytes: 10, limitBytes: 10 })
  expect(readEgress(there.paths)).toEqual({ usedBytes: 10, limitBytes: 10 })
})
