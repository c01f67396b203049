// Migration 19: which models a gateway key may use, and names of its own for them: JSON; null: all of them, and none.

export const keyRules = `
ALTER TABLE gateway_keys ADD COLUMN models TEXT;
ALTER TABLE gateway_keys ADD COLUMN aliases TEXT;
`
