// Names of checks that more than one place looks for, apart from the code that checks: a summary needs only the names.

/** A build's source is the one that was ordered. */
export const sourceCheckName = 'source'

/** The upstream that answered is one that the relying party allows. */
export const upstreamCheckName = 'response-upstream'
