//! One topic as the node knows it: compiled schemas, retention, the installed table's bytes.

use std::sync::Arc;

use ringfence_batch::SchemaPlan;
use ringfence_log::Retention;
use ringfence_routing::IdMap;
use ringfence_wire::crc_of;

use crate::codec::pack;

/// What a body of the topic is checked against. Shared by its hosted partitions, replaced whole when a schema is added.
#[derive(Debug)]
pub struct Plans {
    pub schemas: Vec<Arc<SchemaPlan>>,
    pub key_columns: Vec<usize>,
}

impl Plans {
    /// Topics without key have no slots to check.
    pub fn has_key(&self) -> bool {
        !self.key_columns.is_empty()
    }
}

pub struct Topic {
    /// The schema messages behind `plans`, to tell what an order changes.
    pub messages: Vec<Vec<u8>>,
    pub plans: Arc<Plans>,
    pub retention: Retention,
    pub routing: Option<Routing>,
}

/// Bytes of the newest table.
pub struct Routing {
    /// The topic's full name.
    pub name: String,
    pub version: u64,
    /// Index of the entry that the table was made from.
    pub generation: u64,
    pub table: Arc<[u8]>,
    pub table_crc: u32,
    /// Of the table without its generation and loads.
    pub digest: u64,
    /// Generation at which the digest last changed here.
    pub content: u64,
    /// The table tells loads.
    pub has_loads: bool,
    /// For partitions of which no owner is told below.
    pub redirect: RedirectBody,
    /// By owner's node; as many as there are owners.
    pub redirects: Vec<(u64, RedirectBody)>,
    /// Of SEALED partitions: owner and children, to which an answer adds what is stored.
    pub sealed: IdMap<Arc<[u8]>>,
}

/// The body of a REDIRECT, ready to go.
#[derive(Clone)]
pub struct RedirectBody {
    pub bytes: Arc<[u8]>,
    pub crc: u32,
}

impl RedirectBody {
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), crc: crc_of(bytes) }
    }
}

impl Routing {
    /// The same table with other loads: later questions get them, but they are not pushed.
    pub fn take_hints(&mut self, table: &[u8]) {
        if pack::table_digest(table) == self.digest {
            (self.table, self.table_crc) = (table.into(), crc_of(table));
            self.has_loads = pack::has_loads(table);
        }
    }

    /// The body that names this owner.
    pub fn redirect_to(&self, owner: Option<u64>) -> &RedirectBody {
        let found = owner.and_then(|owner| self.redirects.iter().find(|(node, _)| *node == owner));
        found.map_or(&self.redirect, |(_, body)| body)
    }
}

impl Topic {
    /// # Errors
    /// A sentence that names the schema and what is wrong with it.
    pub fn new(messages: Vec<Vec<u8>>, key_columns: &[usize], retention: Retention) -> Result<Self, String> {
        let plans = Arc::new(compile(&messages, key_columns, &[])?);
        Ok(Self { messages, plans, retention, routing: None })
    }

    /// Take the order's values; schemas may only be added, the key never changes.
    ///
    /// # Errors
    /// A sentence; nothing has changed.
    pub fn update(
        &mut self,
        messages: Vec<Vec<u8>>,
        key_columns: &[usize],
        retention: Retention,
    ) -> Result<(), String> {
        if key_columns != self.plans.key_columns {
            return Err(format!("key columns are {:?}, the order says {key_columns:?}", self.plans.key_columns));
        }
        if messages.len() < self.messages.len() || messages[..self.messages.len()] != self.messages[..] {
            return Err(format!(
                "the order's {} schemas do not begin with the {} installed ones",
                messages.len(),
                self.messages.len()
            ));
        }
        if messages.len() > self.messages.len() {
            self.plans = Arc::new(compile(&messages, key_columns, &self.plans.schemas)?);
            self.messages = messages;
        }
        self.retention = retention;
        Ok(())
    }
}

fn compile(messages: &[Vec<u8>], key_columns: &[usize], known: &[Arc<SchemaPlan>]) -> Result<Plans, String> {
    if messages.is_empty() {
        return Err("a topic needs at least one schema".into());
    }
    let mut schemas = known.to_vec();
    for (id, message) in messages.iter().enumerate().skip(known.len()) {
        let plan = SchemaPlan::new(message, key_columns).map_err(|error| format!("schema {id}: {error}"))?;
        schemas.push(Arc::new(plan));
    }
    Ok(Plans { schemas, key_columns: key_columns.to_vec() })
}
