// Faults of clients while the sums of usage cannot be read. Pure.

import { Fault } from '../../base/fault.ts'

export function unknownUse(cause?: unknown): Fault {
  return new Fault('metering_unavailable', 'Current usage cannot be determined; try again later.', { cause })
}

export function tooMuchAsked(): Fault {
  return new Fault('metering_unavailable', 'Usage accounting is overloaded; retry shortly.')
}

export function cannotRecord(): Fault {
  return new Fault('metering_unavailable', 'Usage cannot be recorded at present; try again later.')
}
