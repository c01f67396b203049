// Whether there is memory for the processes of the gateway. Pure.

import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

/** Memory of a serving process: 60 MB by itself, and the requests it holds. */
const mibPerProcess = 256

export function processProblems({ inference }: Pick<Config, 'inference'>): CrossProblem[] {
  const { placement, processes, memory_mib } = inference
  const needed = processes * mibPerProcess
  if (placement !== 'vm' || processes <= 1 || needed <= memory_mib) return []
  const message = `${processes} processes need ${needed} MiB of inference.memory_mib, which is ${memory_mib}; raise it, or ask for fewer`
  return [{ field: 'inference.processes', message }]
}
