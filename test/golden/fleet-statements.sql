-- organizations: wish; a host may neither insert nor delete
INSERT INTO organizations (id, slug, status, created_at_ms, budget_nano_usd, budget_tokens, short_budgets, quotas, deleting_at_ms, deleted_at_ms) SELECT id, slug, status, created_at_ms, budget_nano_usd, budget_tokens, short_budgets, quotas, deleting_at_ms, deleted_at_ms FROM jsonb_populate_recordset(NULL::organizations, $1::jsonb) AS given 
    ON CONFLICT (id) DO UPDATE SET status = excluded.status, budget_nano_usd = excluded.budget_nano_usd, budget_tokens = excluded.budget_tokens, short_budgets = excluded.short_budgets, quotas = excluded.quotas, deleting_at_ms = coalesce(organizations.deleting_at_ms, excluded.deleting_at_ms), deleted_at_ms = coalesce(organizations.deleted_at_ms, excluded.deleted_at_ms)
DELETE FROM organizations USING jsonb_populate_recordset(NULL::organizations, $1::jsonb) AS given WHERE organizations.id = given.id
-- organizations: report; a host may neither insert nor delete
INSERT INTO organizations (id, slug, status, created_at_ms, budget_nano_usd, budget_tokens, short_budgets, quotas, deleting_at_ms, deleted_at_ms) SELECT id, slug, status, created_at_ms, budget_nano_usd, budget_tokens, short_budgets, quotas, deleting_at_ms, deleted_at_ms FROM jsonb_populate_recordset(NULL::organizations, $1::jsonb) AS given WHERE EXISTS (SELECT 1 FROM organizations AS known WHERE known.id = given.id)
    ON CONFLICT (id) DO UPDATE SET deleting_at_ms = coalesce(organizations.deleting_at_ms, excluded.deleting_at_ms), deleted_at_ms = coalesce(organizations.deleted_at_ms, excluded.deleted_at_ms)
DELETE FROM organizations USING jsonb_populate_recordset(NULL::organizations, $1::jsonb) AS given WHERE organizations.id = given.id
-- organizations: seed; a host may neither insert nor delete
INSERT INTO organizations (id, slug, status, created_at_ms, budget_nano_usd, budget_tokens, short_budgets, quotas, deleting_at_ms, deleted_at_ms) SELECT id, slug, status, created_at_ms, budget_nano_usd, budget_tokens, short_budgets, quotas, deleting_at_ms, deleted_at_ms FROM jsonb_populate_recordset(NULL::organizations, $1::jsonb) AS given WHERE true
    ON CONFLICT (id) DO UPDATE SET status = excluded.status, budget_nano_usd = excluded.budget_nano_usd, budget_tokens = excluded.budget_tokens, short_budgets = excluded.short_budgets, quotas = excluded.quotas, deleting_at_ms = coalesce(organizations.deleting_at_ms, excluded.deleting_at_ms), deleted_at_ms = coalesce(organizations.deleted_at_ms, excluded.deleted_at_ms)
DELETE FROM organizations USING jsonb_populate_recordset(NULL::organizations, $1::jsonb) AS given WHERE organizations.id = given.id
-- keys: wish; a host may neither insert nor delete
INSERT INTO keys (prefix, organization_id, secret_sha256, scope, client_made, name, created_at_ms, revoked_at_ms, last_used_at_ms) SELECT prefix, organization_id, secret_sha256, scope, client_made, name, created_at_ms, revoked_at_ms, last_used_at_ms FROM jsonb_populate_recordset(NULL::keys, $1::jsonb) AS given 
    ON CONFLICT (prefix) DO UPDATE SET revoked_at_ms = coalesce(keys.revoked_at_ms, excluded.revoked_at_ms), last_used_at_ms = greatest(keys.last_used_at_ms, excluded.last_used_at_ms)
DELETE FROM keys USING jsonb_populate_recordset(NULL::keys, $1::jsonb) AS given WHERE keys.prefix = given.prefix
-- keys: report; a host may neither insert nor delete
INSERT INTO keys (prefix, organization_id, secret_sha256, scope, client_made, name, created_at_ms, revoked_at_ms, last_used_at_ms) SELECT prefix, organization_id, secret_sha256, scope, client_made, name, created_at_ms, revoked_at_ms, last_used_at_ms FROM jsonb_populate_recordset(NULL::keys, $1::jsonb) AS given WHERE EXISTS (SELECT 1 FROM keys AS known WHERE known.prefix = given.prefix)
    ON CONFLICT (prefix) DO UPDATE SET revoked_at_ms = coalesce(keys.revoked_at_ms, excluded.revoked_at_ms), last_used_at_ms = greatest(keys.last_used_at_ms, excluded.last_used_at_ms)
DELETE FROM keys USING jsonb_populate_recordset(NULL::keys, $1::jsonb) AS given WHERE keys.prefix = given.prefix
-- keys: seed; a host may neither insert nor delete
INSERT INTO keys (prefix, organization_id, secret_sha256, scope, client_made, name, created_at_ms, revoked_at_ms, last_used_at_ms) SELECT prefix, organization_id, secret_sha256, scope, client_made, name, created_at_ms, revoked_at_ms, last_used_at_ms FROM jsonb_populate_recordset(NULL::keys, $1::jsonb) AS given WHERE true AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (prefix) DO UPDATE SET revoked_at_ms = coalesce(keys.revoked_at_ms, excluded.revoked_at_ms), last_used_at_ms = greatest(keys.last_used_at_ms, excluded.last_used_at_ms)
DELETE FROM keys USING jsonb_populate_recordset(NULL::keys, $1::jsonb) AS given WHERE keys.prefix = given.prefix
-- instances: wish; a host may neither insert nor delete
INSERT INTO instances (id, organization_id, name, hostname, host_id, attempt, desired, status, agent, public_key, inference_mode, inference_model, egress_policy, failure_code, failure_message, terminated_reason, egress_bytes, egress_observed_at_ms, egress_block_applied_at_ms, created_at_ms, ready_at_ms, terminated_at_ms, changed_at_ms, platform) SELECT id, organization_id, name, hostname, host_id, attempt, desired, status, agent, public_key, inference_mode, inference_model, egress_policy, failure_code, failure_message, terminated_reason, egress_bytes, egress_observed_at_ms, egress_block_applied_at_ms, created_at_ms, ready_at_ms, terminated_at_ms, changed_at_ms, platform FROM jsonb_populate_recordset(NULL::instances, $1::jsonb) AS given 
    ON CONFLICT (id) DO UPDATE SET host_id = CASE WHEN excluded.attempt > instances.attempt THEN excluded.host_id ELSE instances.host_id END, attempt = greatest(instances.attempt, excluded.attempt), desired = CASE WHEN instances.desired = 'absent' THEN instances.desired ELSE excluded.desired END, status = CASE WHEN CASE instances.status WHEN 'provisioning' THEN 0 WHEN 'ready' THEN 1 WHEN 'failed' THEN 2 WHEN 'terminating' THEN 3 WHEN 'terminated' THEN 4 END > CASE excluded.status WHEN 'provisioning' THEN 0 WHEN 'ready' THEN 1 WHEN 'failed' THEN 2 WHEN 'terminating' THEN 3 WHEN 'terminated' THEN 4 END THEN instances.status ELSE excluded.status END, failure_code = coalesce(instances.failure_code, excluded.failure_code), failure_message = coalesce(instances.failure_message, excluded.failure_message), terminated_reason = coalesce(instances.terminated_reason, excluded.terminated_reason), egress_bytes = CASE WHEN excluded.attempt > instances.attempt THEN excluded.egress_bytes ELSE instances.egress_bytes END, egress_observed_at_ms = CASE WHEN excluded.attempt > instances.attempt THEN excluded.egress_observed_at_ms ELSE instances.egress_observed_at_ms END, egress_block_applied_at_ms = excluded.egress_block_applied_at_ms, ready_at_ms = coalesce(instances.ready_at_ms, excluded.ready_at_ms), terminated_at_ms = coalesce(instances.terminated_at_ms, excluded.terminated_at_ms), changed_at_ms = greatest(instances.changed_at_ms, excluded.changed_at_ms), platform = excluded.platform
DELETE FROM instances USING jsonb_populate_recordset(NULL::instances, $1::jsonb) AS given WHERE instances.id = given.id
-- instances: report; a host may neither insert nor delete
INSERT INTO instances (id, organization_id, name, hostname, host_id, attempt, desired, status, agent, public_key, inference_mode, inference_model, egress_policy, failure_code, failure_message, terminated_reason, egress_bytes, egress_observed_at_ms, egress_block_applied_at_ms, created_at_ms, ready_at_ms, terminated_at_ms, changed_at_ms, platform) SELECT id, organization_id, name, hostname, host_id, attempt, desired, status, agent, public_key, inference_mode, inference_model, egress_policy, failure_code, failure_message, terminated_reason, egress_bytes, egress_observed_at_ms, egress_block_applied_at_ms, created_at_ms, ready_at_ms, terminated_at_ms, changed_at_ms, platform FROM jsonb_populate_recordset(NULL::instances, $1::jsonb) AS given WHERE EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.id AND own.host_id = $2)
    ON CONFLICT (id) DO UPDATE SET host_id = CASE WHEN excluded.attempt > instances.attempt THEN excluded.host_id ELSE instances.host_id END, attempt = greatest(instances.attempt, excluded.attempt), desired = CASE WHEN instances.desired = 'absent' THEN instances.desired ELSE excluded.desired END, status = CASE WHEN CASE instances.status WHEN 'provisioning' THEN 0 WHEN 'ready' THEN 1 WHEN 'failed' THEN 2 WHEN 'terminating' THEN 3 WHEN 'terminated' THEN 4 END > CASE excluded.status WHEN 'provisioning' THEN 0 WHEN 'ready' THEN 1 WHEN 'failed' THEN 2 WHEN 'terminating' THEN 3 WHEN 'terminated' THEN 4 END THEN instances.status ELSE excluded.status END, failure_code = coalesce(instances.failure_code, excluded.failure_code), failure_message = coalesce(instances.failure_message, excluded.failure_message), terminated_reason = coalesce(instances.terminated_reason, excluded.terminated_reason), egress_bytes = excluded.egress_bytes, egress_observed_at_ms = excluded.egress_observed_at_ms, egress_block_applied_at_ms = excluded.egress_block_applied_at_ms, ready_at_ms = coalesce(instances.ready_at_ms, excluded.ready_at_ms), terminated_at_ms = coalesce(instances.terminated_at_ms, excluded.terminated_at_ms), changed_at_ms = greatest(instances.changed_at_ms, excluded.changed_at_ms), platform = excluded.platform
DELETE FROM instances USING jsonb_populate_recordset(NULL::instances, $1::jsonb) AS given WHERE instances.id = given.id
-- instances: seed; a host may neither insert nor delete
INSERT INTO instances (id, organization_id, name, hostname, host_id, attempt, desired, status, agent, public_key, inference_mode, inference_model, egress_policy, failure_code, failure_message, terminated_reason, egress_bytes, egress_observed_at_ms, egress_block_applied_at_ms, created_at_ms, ready_at_ms, terminated_at_ms, changed_at_ms, platform) SELECT id, organization_id, name, hostname, host_id, attempt, desired, status, agent, public_key, inference_mode, inference_model, egress_policy, failure_code, failure_message, terminated_reason, egress_bytes, egress_observed_at_ms, egress_block_applied_at_ms, created_at_ms, ready_at_ms, terminated_at_ms, changed_at_ms, platform FROM jsonb_populate_recordset(NULL::instances, $1::jsonb) AS given WHERE true AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (id) DO UPDATE SET host_id = CASE WHEN excluded.attempt > instances.attempt THEN excluded.host_id ELSE instances.host_id END, attempt = greatest(instances.attempt, excluded.attempt), desired = CASE WHEN instances.desired = 'absent' THEN instances.desired ELSE excluded.desired END, status = CASE WHEN CASE instances.status WHEN 'provisioning' THEN 0 WHEN 'ready' THEN 1 WHEN 'failed' THEN 2 WHEN 'terminating' THEN 3 WHEN 'terminated' THEN 4 END > CASE excluded.status WHEN 'provisioning' THEN 0 WHEN 'ready' THEN 1 WHEN 'failed' THEN 2 WHEN 'terminating' THEN 3 WHEN 'terminated' THEN 4 END THEN instances.status ELSE excluded.status END, failure_code = coalesce(instances.failure_code, excluded.failure_code), failure_message = coalesce(instances.failure_message, excluded.failure_message), terminated_reason = coalesce(instances.terminated_reason, excluded.terminated_reason), egress_bytes = CASE WHEN excluded.attempt > instances.attempt THEN excluded.egress_bytes ELSE instances.egress_bytes END, egress_observed_at_ms = CASE WHEN excluded.attempt > instances.attempt THEN excluded.egress_observed_at_ms ELSE instances.egress_observed_at_ms END, egress_block_applied_at_ms = excluded.egress_block_applied_at_ms, ready_at_ms = coalesce(instances.ready_at_ms, excluded.ready_at_ms), terminated_at_ms = coalesce(instances.terminated_at_ms, excluded.terminated_at_ms), changed_at_ms = greatest(instances.changed_at_ms, excluded.changed_at_ms), platform = excluded.platform
DELETE FROM instances USING jsonb_populate_recordset(NULL::instances, $1::jsonb) AS given WHERE instances.id = given.id
-- instance_changes: wish; a host may insert
INSERT INTO instance_changes (instance_id, status, at_ms) SELECT instance_id, status, at_ms FROM jsonb_populate_recordset(NULL::instance_changes, $1::jsonb) AS given 
    ON CONFLICT (instance_id, status) DO NOTHING
DELETE FROM instance_changes USING jsonb_populate_recordset(NULL::instance_changes, $1::jsonb) AS given WHERE instance_changes.instance_id = given.instance_id AND instance_changes.status = given.status
-- instance_changes: report; a host may insert
INSERT INTO instance_changes (instance_id, status, at_ms) SELECT instance_id, status, at_ms FROM jsonb_populate_recordset(NULL::instance_changes, $1::jsonb) AS given WHERE EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.instance_id AND own.host_id = $2)
    ON CONFLICT (instance_id, status) DO NOTHING
DELETE FROM instance_changes USING jsonb_populate_recordset(NULL::instance_changes, $1::jsonb) AS given WHERE instance_changes.instance_id = given.instance_id AND instance_changes.status = given.status
-- instance_changes: seed; a host may insert
INSERT INTO instance_changes (instance_id, status, at_ms) SELECT instance_id, status, at_ms FROM jsonb_populate_recordset(NULL::instance_changes, $1::jsonb) AS given WHERE true AND (given.instance_id IS NULL OR EXISTS (SELECT 1 FROM instances WHERE id = given.instance_id))
    ON CONFLICT (instance_id, status) DO NOTHING
DELETE FROM instance_changes USING jsonb_populate_recordset(NULL::instance_changes, $1::jsonb) AS given WHERE instance_changes.instance_id = given.instance_id AND instance_changes.status = given.status
-- instance_attestations: wish; a host may insert
INSERT INTO instance_attestations (instance_id, nonce, ssh_host_key, attested_at_ms, document) SELECT instance_id, nonce, ssh_host_key, attested_at_ms, document FROM jsonb_populate_recordset(NULL::instance_attestations, $1::jsonb) AS given 
    ON CONFLICT (instance_id) DO UPDATE SET nonce = excluded.nonce, ssh_host_key = excluded.ssh_host_key, attested_at_ms = excluded.attested_at_ms, document = excluded.document
DELETE FROM instance_attestations USING jsonb_populate_recordset(NULL::instance_attestations, $1::jsonb) AS given WHERE instance_attestations.instance_id = given.instance_id
-- instance_attestations: report; a host may insert
INSERT INTO instance_attestations (instance_id, nonce, ssh_host_key, attested_at_ms, document) SELECT instance_id, nonce, ssh_host_key, attested_at_ms, document FROM jsonb_populate_recordset(NULL::instance_attestations, $1::jsonb) AS given WHERE EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.instance_id AND own.host_id = $2)
    ON CONFLICT (instance_id) DO UPDATE SET nonce = excluded.nonce, ssh_host_key = excluded.ssh_host_key, attested_at_ms = excluded.attested_at_ms, document = excluded.document
DELETE FROM instance_attestations USING jsonb_populate_recordset(NULL::instance_attestations, $1::jsonb) AS given WHERE instance_attestations.instance_id = given.instance_id AND EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.instance_id AND own.host_id = $2)
-- instance_attestations: seed; a host may insert
INSERT INTO instance_attestations (instance_id, nonce, ssh_host_key, attested_at_ms, document) SELECT instance_id, nonce, ssh_host_key, attested_at_ms, document FROM jsonb_populate_recordset(NULL::instance_attestations, $1::jsonb) AS given WHERE true AND (given.instance_id IS NULL OR EXISTS (SELECT 1 FROM instances WHERE id = given.instance_id))
    ON CONFLICT (instance_id) DO UPDATE SET nonce = excluded.nonce, ssh_host_key = excluded.ssh_host_key, attested_at_ms = excluded.attested_at_ms, document = excluded.document
DELETE FROM instance_attestations USING jsonb_populate_recordset(NULL::instance_attestations, $1::jsonb) AS given WHERE instance_attestations.instance_id = given.instance_id AND EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.instance_id AND own.host_id = $2)
-- instance_addresses: wish; a host may insert, delete
INSERT INTO instance_addresses (instance_id, address, address_v6) SELECT instance_id, address, address_v6 FROM jsonb_populate_recordset(NULL::instance_addresses, $1::jsonb) AS given 
    ON CONFLICT (instance_id) DO UPDATE SET address = excluded.address, address_v6 = excluded.address_v6
DELETE FROM instance_addresses USING jsonb_populate_recordset(NULL::instance_addresses, $1::jsonb) AS given WHERE instance_addresses.instance_id = given.instance_id
-- instance_addresses: report; a host may insert, delete
INSERT INTO instance_addresses (instance_id, address, address_v6) SELECT instance_id, address, address_v6 FROM jsonb_populate_recordset(NULL::instance_addresses, $1::jsonb) AS given WHERE EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.instance_id AND own.host_id = $2)
    ON CONFLICT (instance_id) DO UPDATE SET address = excluded.address, address_v6 = excluded.address_v6
DELETE FROM instance_addresses USING jsonb_populate_recordset(NULL::instance_addresses, $1::jsonb) AS given WHERE instance_addresses.instance_id = given.instance_id AND EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.instance_id AND own.host_id = $2)
-- instance_addresses: seed; a host may insert, delete
INSERT INTO instance_addresses (instance_id, address, address_v6) SELECT instance_id, address, address_v6 FROM jsonb_populate_recordset(NULL::instance_addresses, $1::jsonb) AS given WHERE true AND (given.instance_id IS NULL OR EXISTS (SELECT 1 FROM instances WHERE id = given.instance_id))
    ON CONFLICT (instance_id) DO UPDATE SET address = excluded.address, address_v6 = excluded.address_v6
DELETE FROM instance_addresses USING jsonb_populate_recordset(NULL::instance_addresses, $1::jsonb) AS given WHERE instance_addresses.instance_id = given.instance_id AND EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.instance_id AND own.host_id = $2)
-- gateway_keys: wish; a host may insert, delete
INSERT INTO gateway_keys (prefix, organization_id, instance_id, secret_sha256, client_made, name, requests_per_minute, tokens_per_minute, concurrency_max, created_at_ms, expires_at_ms, revoked_at_ms, last_used_at_ms, models, aliases, budget_nano_usd, budget_tokens, short_budgets) SELECT prefix, organization_id, instance_id, secret_sha256, client_made, name, requests_per_minute, tokens_per_minute, concurrency_max, created_at_ms, expires_at_ms, revoked_at_ms, last_used_at_ms, models, aliases, budget_nano_usd, budget_tokens, short_budgets FROM jsonb_populate_recordset(NULL::gateway_keys, $1::jsonb) AS given 
    ON CONFLICT (prefix) DO UPDATE SET instance_id = excluded.instance_id, requests_per_minute = excluded.requests_per_minute, tokens_per_minute = excluded.tokens_per_minute, concurrency_max = excluded.concurrency_max, expires_at_ms = excluded.expires_at_ms, revoked_at_ms = coalesce(gateway_keys.revoked_at_ms, excluded.revoked_at_ms), last_used_at_ms = greatest(gateway_keys.last_used_at_ms, excluded.last_used_at_ms), models = excluded.models, aliases = excluded.aliases, budget_nano_usd = excluded.budget_nano_usd, budget_tokens = excluded.budget_tokens, short_budgets = excluded.short_budgets
DELETE FROM gateway_keys USING jsonb_populate_recordset(NULL::gateway_keys, $1::jsonb) AS given WHERE gateway_keys.prefix = given.prefix
-- gateway_keys: report; a host may insert, delete
INSERT INTO gateway_keys (prefix, organization_id, instance_id, secret_sha256, client_made, name, requests_per_minute, tokens_per_minute, concurrency_max, created_at_ms, expires_at_ms, revoked_at_ms, last_used_at_ms, models, aliases, budget_nano_usd, budget_tokens, short_budgets) SELECT prefix, organization_id, instance_id, secret_sha256, client_made, name, requests_per_minute, tokens_per_minute, concurrency_max, created_at_ms, expires_at_ms, revoked_at_ms, last_used_at_ms, models, aliases, budget_nano_usd, budget_tokens, short_budgets FROM jsonb_populate_recordset(NULL::gateway_keys, $1::jsonb) AS given WHERE (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id)) AND (given.instance_id IS NULL OR EXISTS (SELECT 1 FROM gateway_keys AS known WHERE known.prefix = given.prefix) OR EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.instance_id AND own.host_id = $2))
    ON CONFLICT (prefix) DO UPDATE SET revoked_at_ms = coalesce(gateway_keys.revoked_at_ms, excluded.revoked_at_ms), last_used_at_ms = greatest(gateway_keys.last_used_at_ms, excluded.last_used_at_ms)
DELETE FROM gateway_keys USING jsonb_populate_recordset(NULL::gateway_keys, $1::jsonb) AS given WHERE gateway_keys.prefix = given.prefix
-- gateway_keys: seed; a host may insert, delete
INSERT INTO gateway_keys (prefix, organization_id, instance_id, secret_sha256, client_made, name, requests_per_minute, tokens_per_minute, concurrency_max, created_at_ms, expires_at_ms, revoked_at_ms, last_used_at_ms, models, aliases, budget_nano_usd, budget_tokens, short_budgets) SELECT prefix, organization_id, instance_id, secret_sha256, client_made, name, requests_per_minute, tokens_per_minute, concurrency_max, created_at_ms, expires_at_ms, revoked_at_ms, last_used_at_ms, models, aliases, budget_nano_usd, budget_tokens, short_budgets FROM jsonb_populate_recordset(NULL::gateway_keys, $1::jsonb) AS given WHERE true AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id)) AND (given.instance_id IS NULL OR EXISTS (SELECT 1 FROM instances WHERE id = given.instance_id))
    ON CONFLICT (prefix) DO UPDATE SET instance_id = excluded.instance_id, requests_per_minute = excluded.requests_per_minute, tokens_per_minute = excluded.tokens_per_minute, concurrency_max = excluded.concurrency_max, expires_at_ms = excluded.expires_at_ms, revoked_at_ms = coalesce(gateway_keys.revoked_at_ms, excluded.revoked_at_ms), last_used_at_ms = greatest(gateway_keys.last_used_at_ms, excluded.last_used_at_ms), models = excluded.models, aliases = excluded.aliases, budget_nano_usd = excluded.budget_nano_usd, budget_tokens = excluded.budget_tokens, short_budgets = excluded.short_budgets
DELETE FROM gateway_keys USING jsonb_populate_recordset(NULL::gateway_keys, $1::jsonb) AS given WHERE gateway_keys.prefix = given.prefix
-- idempotency: wish; a host may neither insert nor delete
INSERT INTO idempotency (organization_id, key, body_sha256, response_status, response_data, created_at_ms) SELECT organization_id, key, body_sha256, response_status, response_data, created_at_ms FROM jsonb_populate_recordset(NULL::idempotency, $1::jsonb) AS given 
    ON CONFLICT (organization_id, key) DO UPDATE SET body_sha256 = excluded.body_sha256, response_status = excluded.response_status, response_data = excluded.response_data, created_at_ms = excluded.created_at_ms
DELETE FROM idempotency USING jsonb_populate_recordset(NULL::idempotency, $1::jsonb) AS given WHERE idempotency.organization_id = given.organization_id AND idempotency.key = given.key
-- idempotency: report; a host may neither insert nor delete
INSERT INTO idempotency (organization_id, key, body_sha256, response_status, response_data, created_at_ms) SELECT organization_id, key, body_sha256, response_status, response_data, created_at_ms FROM jsonb_populate_recordset(NULL::idempotency, $1::jsonb) AS given WHERE EXISTS (SELECT 1 FROM idempotency AS known WHERE known.organization_id = given.organization_id AND known.key = given.key)
    ON CONFLICT (organization_id, key) DO NOTHING
DELETE FROM idempotency USING jsonb_populate_recordset(NULL::idempotency, $1::jsonb) AS given WHERE idempotency.organization_id = given.organization_id AND idempotency.key = given.key
-- idempotency: seed; a host may neither insert nor delete
INSERT INTO idempotency (organization_id, key, body_sha256, response_status, response_data, created_at_ms) SELECT organization_id, key, body_sha256, response_status, response_data, created_at_ms FROM jsonb_populate_recordset(NULL::idempotency, $1::jsonb) AS given WHERE true AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (organization_id, key) DO UPDATE SET body_sha256 = excluded.body_sha256, response_status = excluded.response_status, response_data = excluded.response_data, created_at_ms = excluded.created_at_ms
DELETE FROM idempotency USING jsonb_populate_recordset(NULL::idempotency, $1::jsonb) AS given WHERE idempotency.organization_id = given.organization_id AND idempotency.key = given.key
-- usage_months: wish; a host may insert, delete
INSERT INTO usage_months (organization_id, month, key_prefix, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd) SELECT organization_id, month, key_prefix, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd FROM jsonb_populate_recordset(NULL::usage_months, $1::jsonb) AS given 
    ON CONFLICT (organization_id, month, key_prefix, host_id) DO UPDATE SET requests = greatest(usage_months.requests, excluded.requests), prompt_tokens = greatest(usage_months.prompt_tokens, excluded.prompt_tokens), completion_tokens = greatest(usage_months.completion_tokens, excluded.completion_tokens), cost_nano_usd = greatest(usage_months.cost_nano_usd, excluded.cost_nano_usd)
DELETE FROM usage_months USING jsonb_populate_recordset(NULL::usage_months, $1::jsonb) AS given WHERE usage_months.organization_id = given.organization_id AND usage_months.month = given.month AND usage_months.key_prefix = given.key_prefix AND usage_months.host_id = given.host_id
-- usage_months: report; a host may insert, delete
INSERT INTO usage_months (organization_id, month, key_prefix, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd) SELECT organization_id, month, key_prefix, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd FROM jsonb_populate_recordset(NULL::usage_months, $1::jsonb) AS given WHERE (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (organization_id, month, key_prefix, host_id) DO UPDATE SET requests = greatest(usage_months.requests, excluded.requests), prompt_tokens = greatest(usage_months.prompt_tokens, excluded.prompt_tokens), completion_tokens = greatest(usage_months.completion_tokens, excluded.completion_tokens), cost_nano_usd = greatest(usage_months.cost_nano_usd, excluded.cost_nano_usd)
DELETE FROM usage_months USING jsonb_populate_recordset(NULL::usage_months, $1::jsonb) AS given WHERE usage_months.organization_id = given.organization_id AND usage_months.month = given.month AND usage_months.key_prefix = given.key_prefix AND usage_months.host_id = given.host_id AND split_part(usage_months.host_id, '/', 1) = $2
-- usage_months: seed; a host may insert, delete
INSERT INTO usage_months (organization_id, month, key_prefix, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd) SELECT organization_id, month, key_prefix, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd FROM jsonb_populate_recordset(NULL::usage_months, $1::jsonb) AS given WHERE true AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (organization_id, month, key_prefix, host_id) DO UPDATE SET requests = greatest(usage_months.requests, excluded.requests), prompt_tokens = greatest(usage_months.prompt_tokens, excluded.prompt_tokens), completion_tokens = greatest(usage_months.completion_tokens, excluded.completion_tokens), cost_nano_usd = greatest(usage_months.cost_nano_usd, excluded.cost_nano_usd)
DELETE FROM usage_months USING jsonb_populate_recordset(NULL::usage_months, $1::jsonb) AS given WHERE usage_months.organization_id = given.organization_id AND usage_months.month = given.month AND usage_months.key_prefix = given.key_prefix AND usage_months.host_id = given.host_id AND split_part(usage_months.host_id, '/', 1) = $2
-- usage_days: wish; a host may insert, delete
INSERT INTO usage_days (organization_id, key_prefix, day, model, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd, late_cost_nano_usd) SELECT organization_id, key_prefix, day, model, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd, late_cost_nano_usd FROM jsonb_populate_recordset(NULL::usage_days, $1::jsonb) AS given 
    ON CONFLICT (organization_id, key_prefix, day, model, host_id) DO UPDATE SET requests = greatest(usage_days.requests, excluded.requests), prompt_tokens = greatest(usage_days.prompt_tokens, excluded.prompt_tokens), completion_tokens = greatest(usage_days.completion_tokens, excluded.completion_tokens), cost_nano_usd = greatest(usage_days.cost_nano_usd, excluded.cost_nano_usd), late_cost_nano_usd = greatest(usage_days.late_cost_nano_usd, excluded.late_cost_nano_usd)
DELETE FROM usage_days USING jsonb_populate_recordset(NULL::usage_days, $1::jsonb) AS given WHERE usage_days.organization_id = given.organization_id AND usage_days.key_prefix = given.key_prefix AND usage_days.day = given.day AND usage_days.model = given.model AND usage_days.host_id = given.host_id
-- usage_days: report; a host may insert, delete
INSERT INTO usage_days (organization_id, key_prefix, day, model, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd, late_cost_nano_usd) SELECT organization_id, key_prefix, day, model, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd, late_cost_nano_usd FROM jsonb_populate_recordset(NULL::usage_days, $1::jsonb) AS given WHERE (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (organization_id, key_prefix, day, model, host_id) DO UPDATE SET requests = greatest(usage_days.requests, excluded.requests), prompt_tokens = greatest(usage_days.prompt_tokens, excluded.prompt_tokens), completion_tokens = greatest(usage_days.completion_tokens, excluded.completion_tokens), cost_nano_usd = greatest(usage_days.cost_nano_usd, excluded.cost_nano_usd), late_cost_nano_usd = greatest(usage_days.late_cost_nano_usd, excluded.late_cost_nano_usd)
DELETE FROM usage_days USING jsonb_populate_recordset(NULL::usage_days, $1::jsonb) AS given WHERE usage_days.organization_id = given.organization_id AND usage_days.key_prefix = given.key_prefix AND usage_days.day = given.day AND usage_days.model = given.model AND usage_days.host_id = given.host_id AND split_part(usage_days.host_id, '/', 1) = $2
-- usage_days: seed; a host may insert, delete
INSERT INTO usage_days (organization_id, key_prefix, day, model, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd, late_cost_nano_usd) SELECT organization_id, key_prefix, day, model, host_id, requests, prompt_tokens, completion_tokens, cost_nano_usd, late_cost_nano_usd FROM jsonb_populate_recordset(NULL::usage_days, $1::jsonb) AS given WHERE true AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (organization_id, key_prefix, day, model, host_id) DO UPDATE SET requests = greatest(usage_days.requests, excluded.requests), prompt_tokens = greatest(usage_days.prompt_tokens, excluded.prompt_tokens), completion_tokens = greatest(usage_days.completion_tokens, excluded.completion_tokens), cost_nano_usd = greatest(usage_days.cost_nano_usd, excluded.cost_nano_usd), late_cost_nano_usd = greatest(usage_days.late_cost_nano_usd, excluded.late_cost_nano_usd)
DELETE FROM usage_days USING jsonb_populate_recordset(NULL::usage_days, $1::jsonb) AS given WHERE usage_days.organization_id = given.organization_id AND usage_days.key_prefix = given.key_prefix AND usage_days.day = given.day AND usage_days.model = given.model AND usage_days.host_id = given.host_id AND split_part(usage_days.host_id, '/', 1) = $2
-- builds: wish; a host may insert
INSERT INTO builds (id, organization_id, nonce, source_kind, source_name, source_bytes, source_sha256, repo_url, repo_ref, project_dir, toolchain, reproduce, created_at_ms, fetch_ca_sha256, crates_mirror, options, waivers, host_id, state, error_type, error, result_sha256, provenance_sha256, claims, started_at_ms, finished_at_ms, result_bytes, source_host_id, vm_id, network, evidence, measurement, simulated, ordered_at_ms, closed_at_ms, removed_at_ms, disk_bytes) SELECT id, organization_id, nonce, source_kind, source_name, source_bytes, source_sha256, repo_url, repo_ref, project_dir, toolchain, reproduce, created_at_ms, fetch_ca_sha256, crates_mirror, options, waivers, host_id, state, error_type, error, result_sha256, provenance_sha256, claims, started_at_ms, finished_at_ms, result_bytes, source_host_id, vm_id, network, evidence, measurement, simulated, ordered_at_ms, closed_at_ms, removed_at_ms, disk_bytes FROM jsonb_populate_recordset(NULL::builds, $1::jsonb) AS given 
    ON CONFLICT (id) DO UPDATE SET host_id = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.host_id ELSE excluded.host_id END, state = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.state ELSE excluded.state END, error_type = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.error_type ELSE excluded.error_type END, error = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.error ELSE excluded.error END, result_sha256 = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.result_sha256 ELSE excluded.result_sha256 END, provenance_sha256 = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.provenance_sha256 ELSE excluded.provenance_sha256 END, claims = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.claims ELSE excluded.claims END, started_at_ms = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.started_at_ms ELSE excluded.started_at_ms END, finished_at_ms = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.finished_at_ms ELSE excluded.finished_at_ms END, result_bytes = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.result_bytes ELSE excluded.result_bytes END, source_host_id = CASE WHEN builds.claims > excluded.claims THEN builds.source_host_id ELSE excluded.source_host_id END, vm_id = CASE WHEN builds.claims > excluded.claims THEN builds.vm_id ELSE excluded.vm_id END, network = CASE WHEN builds.claims > excluded.claims THEN builds.network ELSE excluded.network END, evidence = CASE WHEN builds.claims > excluded.claims THEN builds.evidence ELSE excluded.evidence END, measurement = CASE WHEN builds.claims > excluded.claims THEN builds.measurement ELSE excluded.measurement END, simulated = CASE WHEN builds.claims > excluded.claims THEN builds.simulated ELSE excluded.simulated END, ordered_at_ms = CASE WHEN builds.claims > excluded.claims THEN builds.ordered_at_ms ELSE excluded.ordered_at_ms END, closed_at_ms = CASE WHEN builds.claims > excluded.claims THEN builds.closed_at_ms ELSE excluded.closed_at_ms END, removed_at_ms = CASE WHEN builds.claims > excluded.claims THEN builds.removed_at_ms ELSE excluded.removed_at_ms END, disk_bytes = CASE WHEN builds.claims > excluded.claims THEN builds.disk_bytes ELSE excluded.disk_bytes END
DELETE FROM builds USING jsonb_populate_recordset(NULL::builds, $1::jsonb) AS given WHERE builds.id = given.id
-- builds: report; a host may insert
INSERT INTO builds (id, organization_id, nonce, source_kind, source_name, source_bytes, source_sha256, repo_url, repo_ref, project_dir, toolchain, reproduce, created_at_ms, fetch_ca_sha256, crates_mirror, options, waivers, host_id, state, error_type, error, result_sha256, provenance_sha256, claims, started_at_ms, finished_at_ms, result_bytes, source_host_id, vm_id, network, evidence, measurement, simulated, ordered_at_ms, closed_at_ms, removed_at_ms, disk_bytes) SELECT id, organization_id, nonce, source_kind, source_name, source_bytes, source_sha256, repo_url, repo_ref, project_dir, toolchain, reproduce, created_at_ms, fetch_ca_sha256, crates_mirror, options, waivers, host_id, state, error_type, error, result_sha256, provenance_sha256, claims, started_at_ms, finished_at_ms, result_bytes, source_host_id, vm_id, network, evidence, measurement, simulated, ordered_at_ms, closed_at_ms, removed_at_ms, disk_bytes FROM jsonb_populate_recordset(NULL::builds, $1::jsonb) AS given WHERE given.host_id = $2
  AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
  AND NOT EXISTS (SELECT 1 FROM builds AS known WHERE known.id = given.id
    AND (known.claims > given.claims OR (known.host_id <> $2 AND (known.claims = given.claims OR known.state <> 'queued'))))
    ON CONFLICT (id) DO UPDATE SET host_id = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.host_id ELSE excluded.host_id END, state = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.state ELSE excluded.state END, error_type = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.error_type ELSE excluded.error_type END, error = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.error ELSE excluded.error END, result_sha256 = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.result_sha256 ELSE excluded.result_sha256 END, provenance_sha256 = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.provenance_sha256 ELSE excluded.provenance_sha256 END, claims = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.claims ELSE excluded.claims END, started_at_ms = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.started_at_ms ELSE excluded.started_at_ms END, finished_at_ms = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.finished_at_ms ELSE excluded.finished_at_ms END, result_bytes = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.result_bytes ELSE excluded.result_bytes END, source_host_id = CASE WHEN builds.claims > excluded.claims THEN builds.source_host_id ELSE excluded.source_host_id END, vm_id = CASE WHEN builds.claims > excluded.claims THEN builds.vm_id ELSE excluded.vm_id END, network = CASE WHEN builds.claims > excluded.claims THEN builds.network ELSE excluded.network END, evidence = CASE WHEN builds.claims > excluded.claims THEN builds.evidence ELSE excluded.evidence END, measurement = CASE WHEN builds.claims > excluded.claims THEN builds.measurement ELSE excluded.measurement END, simulated = CASE WHEN builds.claims > excluded.claims THEN builds.simulated ELSE excluded.simulated END, ordered_at_ms = CASE WHEN builds.claims > excluded.claims THEN builds.ordered_at_ms ELSE excluded.ordered_at_ms END, closed_at_ms = CASE WHEN builds.claims > excluded.claims THEN builds.closed_at_ms ELSE excluded.closed_at_ms END, removed_at_ms = CASE WHEN builds.claims > excluded.claims THEN builds.removed_at_ms ELSE excluded.removed_at_ms END, disk_bytes = CASE WHEN builds.claims > excluded.claims THEN builds.disk_bytes ELSE excluded.disk_bytes END
DELETE FROM builds USING jsonb_populate_recordset(NULL::builds, $1::jsonb) AS given WHERE builds.id = given.id AND split_part(builds.host_id, '/', 1) = $2
-- builds: seed; a host may insert
INSERT INTO builds (id, organization_id, nonce, source_kind, source_name, source_bytes, source_sha256, repo_url, repo_ref, project_dir, toolchain, reproduce, created_at_ms, fetch_ca_sha256, crates_mirror, options, waivers, host_id, state, error_type, error, result_sha256, provenance_sha256, claims, started_at_ms, finished_at_ms, result_bytes, source_host_id, vm_id, network, evidence, measurement, simulated, ordered_at_ms, closed_at_ms, removed_at_ms, disk_bytes) SELECT id, organization_id, nonce, source_kind, source_name, source_bytes, source_sha256, repo_url, repo_ref, project_dir, toolchain, reproduce, created_at_ms, fetch_ca_sha256, crates_mirror, options, waivers, host_id, state, error_type, error, result_sha256, provenance_sha256, claims, started_at_ms, finished_at_ms, result_bytes, source_host_id, vm_id, network, evidence, measurement, simulated, ordered_at_ms, closed_at_ms, removed_at_ms, disk_bytes FROM jsonb_populate_recordset(NULL::builds, $1::jsonb) AS given WHERE true AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (id) DO UPDATE SET host_id = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.host_id ELSE excluded.host_id END, state = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.state ELSE excluded.state END, error_type = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.error_type ELSE excluded.error_type END, error = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.error ELSE excluded.error END, result_sha256 = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.result_sha256 ELSE excluded.result_sha256 END, provenance_sha256 = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.provenance_sha256 ELSE excluded.provenance_sha256 END, claims = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.claims ELSE excluded.claims END, started_at_ms = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.started_at_ms ELSE excluded.started_at_ms END, finished_at_ms = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.finished_at_ms ELSE excluded.finished_at_ms END, result_bytes = CASE WHEN (builds.claims * 4 + CASE builds.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) > (excluded.claims * 4 + CASE excluded.state WHEN 'queued' THEN 0 WHEN 'starting' THEN 1 WHEN 'running' THEN 2 ELSE 3 END) THEN builds.result_bytes ELSE excluded.result_bytes END, source_host_id = CASE WHEN builds.claims > excluded.claims THEN builds.source_host_id ELSE excluded.source_host_id END, vm_id = CASE WHEN builds.claims > excluded.claims THEN builds.vm_id ELSE excluded.vm_id END, network = CASE WHEN builds.claims > excluded.claims THEN builds.network ELSE excluded.network END, evidence = CASE WHEN builds.claims > excluded.claims THEN builds.evidence ELSE excluded.evidence END, measurement = CASE WHEN builds.claims > excluded.claims THEN builds.measurement ELSE excluded.measurement END, simulated = CASE WHEN builds.claims > excluded.claims THEN builds.simulated ELSE excluded.simulated END, ordered_at_ms = CASE WHEN builds.claims > excluded.claims THEN builds.ordered_at_ms ELSE excluded.ordered_at_ms END, closed_at_ms = CASE WHEN builds.claims > excluded.claims THEN builds.closed_at_ms ELSE excluded.closed_at_ms END, removed_at_ms = CASE WHEN builds.claims > excluded.claims THEN builds.removed_at_ms ELSE excluded.removed_at_ms END, disk_bytes = CASE WHEN builds.claims > excluded.claims THEN builds.disk_bytes ELSE excluded.disk_bytes END
DELETE FROM builds USING jsonb_populate_recordset(NULL::builds, $1::jsonb) AS given WHERE builds.id = given.id AND split_part(builds.host_id, '/', 1) = $2
-- build_nonces: wish; a host may insert
INSERT INTO build_nonces (owner, nonce, build_id) SELECT owner, nonce, build_id FROM jsonb_populate_recordset(NULL::build_nonces, $1::jsonb) AS given 
    ON CONFLICT (owner, nonce) DO NOTHING
DELETE FROM build_nonces USING jsonb_populate_recordset(NULL::build_nonces, $1::jsonb) AS given WHERE build_nonces.owner = given.owner AND build_nonces.nonce = given.nonce
-- build_nonces: report; a host may insert
INSERT INTO build_nonces (owner, nonce, build_id) SELECT owner, nonce, build_id FROM jsonb_populate_recordset(NULL::build_nonces, $1::jsonb) AS given WHERE EXISTS (SELECT 1 FROM builds AS own WHERE own.id = given.build_id AND own.host_id = $2)
    ON CONFLICT (owner, nonce) DO NOTHING
DELETE FROM build_nonces USING jsonb_populate_recordset(NULL::build_nonces, $1::jsonb) AS given WHERE build_nonces.owner = given.owner AND build_nonces.nonce = given.nonce
-- build_nonces: seed; a host may insert
INSERT INTO build_nonces (owner, nonce, build_id) SELECT owner, nonce, build_id FROM jsonb_populate_recordset(NULL::build_nonces, $1::jsonb) AS given WHERE true
    ON CONFLICT (owner, nonce) DO NOTHING
DELETE FROM build_nonces USING jsonb_populate_recordset(NULL::build_nonces, $1::jsonb) AS given WHERE build_nonces.owner = given.owner AND build_nonces.nonce = given.nonce
-- build_reservations: wish; a host may insert, delete
INSERT INTO build_reservations (vm_id, host_id, organization_id, expires_at_ms) SELECT vm_id, host_id, organization_id, expires_at_ms FROM jsonb_populate_recordset(NULL::build_reservations, $1::jsonb) AS given 
    ON CONFLICT (vm_id) DO NOTHING
DELETE FROM build_reservations USING jsonb_populate_recordset(NULL::build_reservations, $1::jsonb) AS given WHERE build_reservations.vm_id = given.vm_id
-- build_reservations: report; a host may insert, delete
INSERT INTO build_reservations (vm_id, host_id, organization_id, expires_at_ms) SELECT vm_id, host_id, organization_id, expires_at_ms FROM jsonb_populate_recordset(NULL::build_reservations, $1::jsonb) AS given WHERE given.host_id = $2 AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (vm_id) DO NOTHING
DELETE FROM build_reservations USING jsonb_populate_recordset(NULL::build_reservations, $1::jsonb) AS given WHERE build_reservations.vm_id = given.vm_id AND split_part(build_reservations.host_id, '/', 1) = $2
-- build_reservations: seed; a host may insert, delete
INSERT INTO build_reservations (vm_id, host_id, organization_id, expires_at_ms) SELECT vm_id, host_id, organization_id, expires_at_ms FROM jsonb_populate_recordset(NULL::build_reservations, $1::jsonb) AS given WHERE true AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
    ON CONFLICT (vm_id) DO NOTHING
DELETE FROM build_reservations USING jsonb_populate_recordset(NULL::build_reservations, $1::jsonb) AS given WHERE build_reservations.vm_id = given.vm_id AND split_part(build_reservations.host_id, '/', 1) = $2
-- {"name":"organizations","key":["id"],"hostMay":[]}
--   {"name":"id","type":"text","merge":"fixed"}
--   {"name":"slug","type":"text","merge":"fixed"}
--   {"name":"status","type":"text","merge":"wish"}
--   {"name":"created_at_ms","type":"integer","merge":"fixed"}
--   {"name":"budget_nano_usd","type":"integer","merge":"wish"}
--   {"name":"budget_tokens","type":"integer","merge":"wish"}
--   {"name":"short_budgets","type":"text","merge":"wish"}
--   {"name":"quotas","type":"text","merge":"wish"}
--   {"name":"deleting_at_ms","type":"integer","merge":"first"}
--   {"name":"deleted_at_ms","type":"integer","merge":"first"}
-- {"name":"keys","key":["prefix"],"samples":"key_uses","hostMay":[]}
--   {"name":"prefix","type":"text","merge":"fixed"}
--   {"name":"organization_id","type":"text","merge":"fixed"}
--   {"name":"secret_sha256","type":"bytes","merge":"fixed"}
--   {"name":"scope","type":"text","merge":"fixed"}
--   {"name":"client_made","type":"integer","merge":"fixed","otherwise":0}
--   {"name":"name","type":"text","merge":"fixed"}
--   {"name":"created_at_ms","type":"integer","merge":"fixed"}
--   {"name":"revoked_at_ms","type":"integer","merge":"first"}
--   {"name":"last_used_at_ms","type":"integer","merge":"latest","isSampled":true}
-- {"name":"instances","key":["id"],"samples":"instance_egress","hostMay":[]}
--   {"name":"id","type":"text","merge":"fixed"}
--   {"name":"organization_id","type":"text","merge":"fixed"}
--   {"name":"name","type":"text","merge":"fixed"}
--   {"name":"hostname","type":"text","merge":"fixed"}
--   {"name":"host_id","type":"text","merge":"attempt"}
--   {"name":"attempt","type":"integer","merge":"latest","otherwise":1}
--   {"name":"desired","type":"text","merge":"desired"}
--   {"name":"status","type":"text","merge":"status"}
--   {"name":"agent","type":"text","merge":"fixed"}
--   {"name":"public_key","type":"text","merge":"fixed"}
--   {"name":"inference_mode","type":"text","merge":"fixed"}
--   {"name":"inference_model","type":"text","merge":"fixed"}
--   {"name":"egress_policy","type":"text","merge":"fixed"}
--   {"name":"failure_code","type":"text","merge":"first"}
--   {"name":"failure_message","type":"text","merge":"first"}
--   {"name":"terminated_reason","type":"text","merge":"first"}
--   {"name":"egress_bytes","type":"integer","merge":"sampled","isSampled":true}
--   {"name":"egress_observed_at_ms","type":"integer","merge":"sampled","isSampled":true,"reportedEveryMs":60000}
--   {"name":"egress_block_applied_at_ms","type":"integer","merge":"owner"}
--   {"name":"created_at_ms","type":"integer","merge":"fixed"}
--   {"name":"ready_at_ms","type":"integer","merge":"first"}
--   {"name":"terminated_at_ms","type":"integer","merge":"first"}
--   {"name":"changed_at_ms","type":"integer","merge":"latest"}
--   {"name":"platform","type":"text","merge":"owner"}
-- {"name":"instance_changes","key":["instance_id","status"],"isLog":true,"hostMay":["insert"]}
--   {"name":"instance_id","type":"text","merge":"fixed"}
--   {"name":"status","type":"text","merge":"fixed"}
--   {"name":"at_ms","type":"integer","merge":"fixed"}
-- {"name":"instance_attestations","key":["instance_id"],"ofInstance":"instance_id","hostMay":["insert"]}
--   {"name":"instance_id","type":"text","merge":"fixed"}
--   {"name":"nonce","type":"text","merge":"owner"}
--   {"name":"ssh_host_key","type":"text","merge":"owner"}
--   {"name":"attested_at_ms","type":"integer","merge":"owner"}
--   {"name":"document","type":"text","merge":"owner"}
-- {"name":"instance_addresses","key":["instance_id"],"ofInstance":"instance_id","hostMay":["insert","delete"]}
--   {"name":"instance_id","type":"text","merge":"fixed"}
--   {"name":"address","type":"text","merge":"owner"}
--   {"name":"address_v6","type":"text","merge":"owner"}
-- {"name":"gateway_keys","key":["prefix"],"samples":"gateway_key_uses","hostMay":["insert","delete"]}
--   {"name":"prefix","type":"text","merge":"fixed"}
--   {"name":"organization_id","type":"text","merge":"fixed"}
--   {"name":"instance_id","type":"text","merge":"wish"}
--   {"name":"secret_sha256","type":"bytes","merge":"fixed"}
--   {"name":"client_made","type":"integer","merge":"fixed","otherwise":0}
--   {"name":"name","type":"text","merge":"fixed"}
--   {"name":"requests_per_minute","type":"integer","merge":"wish"}
--   {"name":"tokens_per_minute","type":"integer","merge":"wish"}
--   {"name":"concurrency_max","type":"integer","merge":"wish"}
--   {"name":"created_at_ms","type":"integer","merge":"fixed"}
--   {"name":"expires_at_ms","type":"integer","merge":"wish"}
--   {"name":"revoked_at_ms","type":"integer","merge":"first"}
--   {"name":"last_used_at_ms","type":"integer","merge":"latest","isSampled":true}
--   {"name":"models","type":"text","merge":"wish"}
--   {"name":"aliases","type":"text","merge":"wish"}
--   {"name":"budget_nano_usd","type":"integer","merge":"wish"}
--   {"name":"budget_tokens","type":"integer","merge":"wish"}
--   {"name":"short_budgets","type":"text","merge":"wish"}
-- {"name":"idempotency","key":["organization_id","key"],"hostMay":[]}
--   {"name":"organization_id","type":"text","merge":"fixed"}
--   {"name":"key","type":"text","merge":"fixed"}
--   {"name":"body_sha256","type":"bytes","merge":"wish"}
--   {"name":"response_status","type":"integer","merge":"wish"}
--   {"name":"response_data","type":"text","merge":"wish"}
--   {"name":"created_at_ms","type":"integer","merge":"wish"}
-- {"name":"usage_months","key":["organization_id","month","key_prefix","host_id"],"isSum":true,"hostMay":["insert","delete"]}
--   {"name":"organization_id","type":"text","merge":"fixed"}
--   {"name":"month","type":"text","merge":"fixed"}
--   {"name":"key_prefix","type":"text","merge":"fixed"}
--   {"name":"host_id","type":"text","merge":"fixed"}
--   {"name":"requests","type":"integer","merge":"latest"}
--   {"name":"prompt_tokens","type":"integer","merge":"latest"}
--   {"name":"completion_tokens","type":"integer","merge":"latest"}
--   {"name":"cost_nano_usd","type":"integer","merge":"latest"}
-- {"name":"usage_days","key":["organization_id","key_prefix","day","model","host_id"],"isSum":true,"hostMay":["insert","delete"]}
--   {"name":"organization_id","type":"text","merge":"fixed"}
--   {"name":"key_prefix","type":"text","merge":"fixed"}
--   {"name":"day","type":"text","merge":"fixed"}
--   {"name":"model","type":"text","merge":"fixed"}
--   {"name":"host_id","type":"text","merge":"fixed"}
--   {"name":"requests","type":"integer","merge":"latest"}
--   {"name":"prompt_tokens","type":"integer","merge":"latest"}
--   {"name":"completion_tokens","type":"integer","merge":"latest"}
--   {"name":"cost_nano_usd","type":"integer","merge":"latest"}
--   {"name":"late_cost_nano_usd","type":"integer","merge":"latest"}
-- {"name":"builds","key":["id"],"isHeld":true,"hostMay":["insert"]}
--   {"name":"id","type":"text","merge":"fixed"}
--   {"name":"organization_id","type":"text","merge":"fixed"}
--   {"name":"nonce","type":"text","merge":"fixed"}
--   {"name":"source_kind","type":"text","merge":"fixed"}
--   {"name":"source_name","type":"text","merge":"fixed"}
--   {"name":"source_bytes","type":"integer","merge":"fixed"}
--   {"name":"source_sha256","type":"text","merge":"fixed"}
--   {"name":"repo_url","type":"text","merge":"fixed"}
--   {"name":"repo_ref","type":"text","merge":"fixed"}
--   {"name":"project_dir","type":"text","merge":"fixed"}
--   {"name":"toolchain","type":"text","merge":"fixed"}
--   {"name":"reproduce","type":"integer","merge":"fixed"}
--   {"name":"created_at_ms","type":"integer","merge":"fixed"}
--   {"name":"fetch_ca_sha256","type":"text","merge":"fixed"}
--   {"name":"crates_mirror","type":"text","merge":"fixed"}
--   {"name":"options","type":"text","merge":"fixed"}
--   {"name":"waivers","type":"text","merge":"fixed"}
--   {"name":"host_id","type":"text","merge":"stage"}
--   {"name":"state","type":"text","merge":"stage"}
--   {"name":"error_type","type":"text","merge":"stage"}
--   {"name":"error","type":"text","merge":"stage"}
--   {"name":"result_sha256","type":"text","merge":"stage"}
--   {"name":"provenance_sha256","type":"text","merge":"stage"}
--   {"name":"claims","type":"integer","merge":"stage"}
--   {"name":"started_at_ms","type":"integer","merge":"stage"}
--   {"name":"finished_at_ms","type":"integer","merge":"stage"}
--   {"name":"result_bytes","type":"integer","merge":"stage"}
--   {"name":"source_host_id","type":"text","merge":"holder"}
--   {"name":"vm_id","type":"text","merge":"holder"}
--   {"name":"network","type":"text","merge":"holder"}
--   {"name":"evidence","type":"text","merge":"holder"}
--   {"name":"measurement","type":"text","merge":"holder"}
--   {"name":"simulated","type":"integer","merge":"holder"}
--   {"name":"ordered_at_ms","type":"integer","merge":"holder"}
--   {"name":"closed_at_ms","type":"integer","merge":"holder"}
--   {"name":"removed_at_ms","type":"integer","merge":"holder"}
--   {"name":"disk_bytes","type":"integer","merge":"holder"}
-- {"name":"build_nonces","key":["owner","nonce"],"isLog":true,"hostMay":["insert"]}
--   {"name":"owner","type":"text","merge":"fixed"}
--   {"name":"nonce","type":"text","merge":"fixed"}
--   {"name":"build_id","type":"text","merge":"fixed"}
-- {"name":"build_reservations","key":["vm_id"],"isHeld":true,"hostMay":["insert","delete"]}
--   {"name":"vm_id","type":"text","merge":"fixed"}
--   {"name":"host_id","type":"text","merge":"fixed"}
--   {"name":"organization_id","type":"text","merge":"fixed"}
--   {"name":"expires_at_ms","type":"integer","merge":"fixed"}
