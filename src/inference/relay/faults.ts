// Faults between owner and relay, with everything that their responses need. No effects.

import { FAULTS, Fault, type FaultCode, messageOf } from '../../base/fault.ts'
import { BusyFault, UpstreamFault } from '../failure.ts'
import { BudgetFault } from '../metering/budgets.ts'
import type { WireFault } from './wire.ts'

export function wireFaultOf(error: unknown): WireFault {
  if (!(error instanceof Fault)) return { code: 'internal', message: messageOf(error) }
  const { code, message, param } = error
  const fault = param === undefined ? { code, message } : { code, message, param }
  if (error instanceof UpstreamFault) return { ...fault, reason: error.reason }
  if (error instanceof BusyFault) return { ...fault, retryAfterSeconds: error.retryAfterSeconds }
  return error instanceof BudgetFault ? { ...fault, mayFitSoon: error.mayFitSoon } : fault
}

export function faultOf({ code, message, param, reason, retryAfterSeconds, mayFitSoon }: WireFault): Fault {
  if (reason !== undefined) return new UpstreamFault(reason)
  if (mayFitSoon !== undefined) return new BudgetFault(message, { mayFitSoon })
  if (retryAfterSeconds !== undefined) return new BusyFault(message, retryAfterSeconds)
  const known = Object.hasOwn(FAULTS, code) ? (code as FaultCode) : 'internal'
  return new Fault(known, message, param === undefined ? {} : { param })
}
