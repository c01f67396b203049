// Schema 39: options of a build request that belong to one toolchain, and toolchains that the API alone lists.

export const buildOptions = {
  to: 39,
  sql: `
-- JSON; NULL if the request has none of these options.
ALTER TABLE builds RENAME COLUMN nix TO options;
UPDATE builds SET options = json_object('nix', json(options)) WHERE options IS NOT NULL;

-- Without the CHECK, so that a toolchain needs no migration.
ALTER TABLE builds RENAME COLUMN toolchain TO listed_toolchain;
ALTER TABLE builds ADD COLUMN toolchain TEXT;
UPDATE builds SET toolchain = listed_toolchain;
ALTER TABLE builds DROP COLUMN listed_toolchain;
`,
} as const
