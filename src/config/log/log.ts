// The transparency log: the table `log` of the configuration. Pure.

import { Type } from '@sinclair/typebox'
import { Count, Entry, Section } from '../fields.ts'

const WitnessConfig = Entry({
  key: Type.String({
    pattern: '^[^+\\s]{1,255}\\+[0-9a-f]{8}\\+[A-Za-z0-9+/]{44}$',
    allowed: 'a key NAME+ID+KEY as the witness publishes it (C2SP signed-note, type 4)',
    description: 'Key of the witness.',
  }),
  url: Type.String({
    default: '',
    pattern: '^$|^https?://[^/?#@\\s]+(/[^?#\\s]*)?$',
    maxLength: 512,
    allowed:
      '"" or an http or https URL with its path, without credentials, such as "https://witness.example/add-checkpoint"',
    description:
      'Its `add-checkpoint` address (C2SP tlog-witness), which gets a checkpoint after each entry and twice a day. "" if its cosignatures come by `strongroom log cosign`.',
  }),
})

export const LogConfig = Section({
  witnesses: Type.Array(WitnessConfig, {
    default: [],
    maxItems: 16,
    description:
      'Other parties that cosign the transparency log, so that clients need not trust this host for it. With any, a new entry is shown when one of them has cosigned it.',
  }),
  requests_per_minute: Count(
    [600, 1, 1_000_000],
    'Requests per minute to the log, for each IPv4 address or IPv6 network of 64 bits. Beyond it: status 429.',
  ),
})
