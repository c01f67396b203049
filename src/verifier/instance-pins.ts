// The pins of an instance (pins.ts). Pure.

import type { Pinning } from './pins.ts'

/**
 * Pins of an instance. It has no allowlist, because its owner starts what runs in it. The operator's key is a separate
 * pin: anyone can launch the public, measured image, and only the key identifies the host's operator. So is the gateway
 * that receives its prompts.
 */
export const INSTANCE_PINS = ['measurement', 'operator-key', 'gateway', 'vmpl', 'crl', 'tcb'] as const

export type InstancePins = Pinning<(typeof INSTANCE_PINS)[number]>

export const allInstancePins: InstancePins = {
  measurement: 'required',
  'operator-key': 'required',
  gateway: 'required',
  vmpl: 'required',
  crl: 'required',
  tcb: 'required',
}
