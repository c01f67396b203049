// Contradictions in the table `inference.traces` of the configuration. Pure.

import type { TracesConfig } from '../traces.ts'
import type { CrossProblem } from './builds.ts'

export function tracesProblems(traces: TracesConfig): CrossProblem[] {
  const { endpoint, headers_file, ca_file, batch_max, queue_max } = traces
  const field = (name: keyof TracesConfig) => `inference.traces.${name}`
  const problems = [
    ...when(batch_max > queue_max, {
      field: field('batch_max'),
      message: `${batch_max} is more than may wait (queue_max, ${queue_max})`,
    }),
  ]
  if (endpoint === '') return problems
  const url = URL.canParse(endpoint) ? new URL(endpoint) : null
  if (url === null) {
    return [...problems, { field: field('endpoint'), message: `${JSON.stringify(endpoint)} is not a URL` }]
  }
  const isTls = url.protocol === 'https:'
  return [
    ...problems,
    ...when(url.pathname === '/', {
      field: field('endpoint'),
      message: `${endpoint} has no path; OTLP receivers usually listen at /v1/traces`,
    }),
    ...when(!isTls && ca_file !== '', { field: field('ca_file'), message: 'needs an https endpoint' }),
    ...when(!isTls && headers_file !== '' && !isLoopback(url.hostname), {
      field: field('headers_file'),
      message: 'needs an https endpoint: what is in it would be sent in the clear to another host',
    }),
  ]
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\.[0-9.]+$/.test(hostname)
}

function when(wrong: boolean, problem: CrossProblem): CrossProblem[] {
  return wrong ? [problem] : []
}
