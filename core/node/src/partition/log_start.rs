//! Log starts that were ordered: kept while the partition is here, carried out as far as the mark allows.
//!
//! The control plane has them on disk, and gives each of them again at every start, before the partition gets a role.
//! So this store keeps them in memory: a replica that lags, or does not know its mark yet, carries one out when it gets
//! there, and shows no row below it meanwhile. A start names the owner epoch that it was ordered under: rows of later
//! epochs did not exist then. After a choice of an owner without a majority they have offsets that others had before.

/// Rows below `offset` are to be given up, except those of epochs above `epoch`; 0: whatever their epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedStart {
    pub offset: u64,
    pub epoch: u64,
}
