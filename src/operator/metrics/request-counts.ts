// Counts the responses of the services by status, for the metrics. State in memory, bounded by the statuses that HTTP
// has.

import { family, metricsText } from '../../base/prometheus.ts'

type CountedService = 'instances' | 'builds' | 'console'

export class RequestCounts {
  readonly #counts = new Map<string, number>()

  /** Returns a handler that does the same and counts its responses. */
  counted<Args extends unknown[]>(
    service: CountedService,
    handler: (...args: Args) => Response | Promise<Response>,
  ): (...args: Args) => Promise<Response> {
    return async (...args) => {
      const response = await handler(...args)
      this.#count(service, response.status)
      return response
    }
  }

  #count(service: CountedService, status: number): void {
    const key = `${service} ${status}`
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1)
  }

  /** Prometheus text. */
  render(): string {
    const samples = [...this.#counts].map(([key, count]) => {
      const [service = '', status = ''] = key.split(' ')
      return [{ service, status }, count] as const
    })
    const help =
      'Responses by service and status; those of the inference gateway are strongroom_gateway_requests_total.'
    return metricsText([family('strongroom_requests_total', help, 'counter', samples)])
  }
}
