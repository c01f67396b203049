// Fields of a policy file about the statement of an instance's VM. Pure.

import { Closed } from '../../contract/forms.ts'
import { EgressPolicy } from '../../contract/http/egress-policy.ts'
import { Type } from '../../contract/type.ts'
import { publishedMax } from '../../contract/vm/orders/published.ts'
import { secretsMax } from '../../contract/vm/orders/secret.ts'
import { SecretFacts } from '../../contract/vm/orders/secret-facts.ts'
import { ExpectedPort } from '../../verifier/ordered/published.ts'

export const SecretList = Type.Array(SecretFacts, { maxItems: secretsMax })

const ofInstances = 'Only for an instance. Absent: any.'

export const StatedFields = Closed({
  egress: Type.Optional(
    Closed(EgressPolicy.properties, { description: `All that its programs may reach. ${ofInstances}` }),
  ),
  secrets: Type.Optional({ ...SecretList, description: `All its secrets; none if empty. ${ofInstances}` }),
  published: Type.Optional(
    Type.Array(ExpectedPort, {
      maxItems: publishedMax,
      description: `All its published ports; none if empty. ${ofInstances} Absent beside an egress that refuses destinations: none.`,
    }),
  ),
  loginKeys: Type.Optional(
    Type.Array(Type.String({ maxLength: 16_384 }), {
      minItems: 1,
      maxItems: 64,
      description: `The only SSH public keys that may log in, as OpenSSH writes them. ${ofInstances}`,
    }),
  ),
})
