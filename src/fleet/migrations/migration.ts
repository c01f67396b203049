// A step of the directory's schema. Pure.

export type FleetMigration = {
  /** The schema version that it creates. */
  readonly to: number
  /** The release that introduces it, counted from the first with fleets. */
  readonly release: number
  readonly name: string
  /** Statements without parameters. Names need no schema, because of the search path. */
  readonly sql: string
}
