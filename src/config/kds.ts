// Where AMD's certificates come from: the table `kds` of the configuration. Pure.

import { Type } from '@sinclair/typebox'
import { Section } from './fields.ts'

export const KdsConfig = Section({
  base_url: Type.String({
    default: 'https://kdsintf.amd.com',
    pattern: '^$|^https?://[^/?#@\\s]+(/[^?#\\s]*)?$',
    maxLength: 512,
    allowed: '"" or an http or https URL without credentials',
    description:
      'snp: AMD\'s key distribution service, or a mirror of it; "" for none: its files are then put below kds/ in the state directory.',
  }),
})
