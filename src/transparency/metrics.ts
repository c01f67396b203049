// The transparency log as metrics. Pure except for reading the log.

import { family, metricsText } from '../base/prometheus.ts'
import { logState, type WatchedLog } from './health.ts'

/** The label is a witness's name, as the configuration has it. */
export function createLogMetrics(watched: WatchedLog): { readonly render: () => string } {
  return {
    render: () => {
      const { size, shown, lastEntryMs, waitingSinceMs, failure, witnesses } = logState(watched)
      const gauge = (name: string, help: string, value: number) =>
        family(`strongroom_log_${name}`, help, 'gauge', [[{}, value]])
      return metricsText([
        gauge('entries', 'Entries of the transparency log.', size),
        gauge('entries_waiting', 'Entries that are not shown because no witness has cosigned them.', size - shown),
        gauge(
          'last_entry_timestamp_seconds',
          'When the newest entry was written, 0: there is none.',
          seconds(lastEntryMs),
        ),
        gauge(
          'waiting_since_timestamp_seconds',
          'When the oldest entry that is not shown was written; 0 if all are shown.',
          seconds(waitingSinceMs),
        ),
        gauge('writable', '0 while no entry can be written.', failure === null ? 1 : 0),
        family(
          'strongroom_log_witness_cosigned_timestamp_seconds',
          'When a witness cosigned the log last, 0: it never did.',
          'gauge',
          witnesses.map(({ name, cosignedMs }) => [{ witness: name }, seconds(cosignedMs)]),
        ),
        family(
          'strongroom_log_witness_failing',
          '1 while a witness with an address does not cosign.',
          'gauge',
          witnesses.map(({ name, failingSinceMs }) => [{ witness: name }, failingSinceMs === null ? 0 : 1]),
        ),
      ])
    },
  }
}

function seconds(ms: number | null): number {
  return Math.floor((ms ?? 0) / 1000)
}
