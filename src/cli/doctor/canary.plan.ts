// Whether guests run here, judged from a canary. Pure.

import type { Platform } from '../../config/schema.ts'
import { type Check, fail, pass, skip } from './check.ts'

export type CanaryFacts =
  /** The canary wrote its byte. */
  | { readonly kind: 'ran'; readonly tookMs: number }
  /** The program was started and printed nothing. `isGone`: it could be ended. */
  | { readonly kind: 'silent'; readonly tookMs: number; readonly isGone: boolean }
  /** QEMU refused to start it. */
  | { readonly kind: 'failed'; readonly text: string }
  /** The program was not started. */
  | { readonly kind: 'none'; readonly reason: string }

const name = 'canary'

export function canaryCheck(facts: CanaryFacts, platform: Platform): Check {
  const accelerator = platform === 'tcg' ? 'software emulation' : 'KVM'
  switch (facts.kind) {
    case 'none':
      return skip(name, facts.reason)
    case 'ran': {
      const snp = platform === 'snp' ? '; that its memory is encrypted, the evidence of each VM shows' : ''
      return pass(name, `a guest ran under ${accelerator} within ${facts.tookMs} ms${snp}`)
    }
    case 'silent': {
      const left = facts.isGone ? '' : '; its QEMU does not even die'
      const detail = `a guest was started under ${accelerator} and did nothing within ${facts.tookMs} ms${left}`
      return fail(name, detail, platform === 'tcg' ? SLOW_REMEDY : HANG_REMEDY)
    }
    case 'failed': {
      // bwrap itself failed: its user may not make namespaces.
      const remedy = facts.text.startsWith('bwrap: ') ? JAIL_REMEDY : FAILED_REMEDY
      return fail(
        name,
        `QEMU could not start a guest under ${accelerator}: ${facts.text}`,
        platform === 'tcg' ? remedy : `${remedy}; else ${HANG_REMEDY}`,
      )
    }
  }
}

const HANG_REMEDY =
  'run the appliance on a host whose KVM runs guests: not in a VM without nested virtualization; for development alone set platform = "tcg", which is slow and SIMULATED'
const SLOW_REMEDY = 'look what else takes the CPU of this host, then run doctor again'
const JAIL_REMEDY =
  'let unprivileged users make user namespaces: sysctl user.max_user_namespaces=16384, kernel.unprivileged_userns_clone=1 where it is there; then run doctor again'
const FAILED_REMEDY = 'correct vm.qemu, or install qemu-system-x86 with its firmware and modules; then run doctor again'
