// Traces of the gateway: the table `inference.traces` of the configuration. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { Count, PathOrNone, Section } from './fields.ts'

export const TracesConfig = Section({
  endpoint: Type.String({
    default: '',
    pattern: '^$|^https?://[^/?#@\\s]+(/[^?#\\s]*)?$',
    maxLength: 512,
    allowed: '"" or an http or https URL with its path, without credentials, such as "http://127.0.0.1:4318/v1/traces"',
    description:
      'Where spans of requests to the gateway are sent, by OTLP over HTTP as JSON (OpenTelemetry): ids, codes, counts and times, never text. "" for no traces. Whether there are any, and the next three fields, are in workload.json.',
  }),
  sample_ratio: Type.Number({
    default: 1,
    minimum: 0,
    maximum: 1,
    allowed: 'a number from 0 to 1',
    description: 'Share of the requests that is traced.',
  }),
  follow_parent: Type.Boolean({
    default: false,
    description:
      'Whether the sampled flag of a `traceparent` that the client sends decides instead. Then clients choose how much is traced.',
  }),
  forward_parent: Type.Boolean({
    default: false,
    description: 'Whether upstreams are sent the `traceparent` of a request that is traced.',
  }),
  headers_file: PathOrNone(
    'File with headers to send to `endpoint`, such as its key: one `Name: value` a line. Needs an https URL, or one of this host. "" for none.',
  ),
  ca_file: PathOrNone(
    'File with the PEM certificates of the authorities to trust for `endpoint`. "" for those of the system.',
  ),
  timeout_ms: Count([10_000, 100, 120_000], 'Longest time for one batch of spans to be taken.'),
  interval_ms: Count([1_000, 100, 60_000], 'How often spans are sent.'),
  /** No share: spans decide nothing. */
  batch_max: Count([128, 1, 512], 'Most spans in one batch.'),
  /** No share: spans decide nothing; the oldest are dropped and counted. */
  queue_max: Count([4_096, 1, 65_536], 'How many spans may wait. Of more, the oldest are dropped and counted.'),
})
export type TracesConfig = Static<typeof TracesConfig>
