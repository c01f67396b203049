// Where AMD's certificates come from: the table `kds` of the configuration. Pure.

import { Type } from '@sinclair/typebox'
import { kdsUrlDefault, kdsUrlLengthMax, kdsUrlPattern } from '../attest/kds/service-url.ts'
import { Section } from './fields.ts'

export const KdsConfig = Section({
  base_url: Type.String({
    default: kdsUrlDefault,
    pattern: kdsUrlPattern,
    maxLength: kdsUrlLengthMax,
    allowed: '"" or an http or https URL without credentials',
    description:
      'snp: AMD\'s key distribution service, or a mirror of it; "" for none: its files are then put below kds/ in the state directory.',
  }),
})
