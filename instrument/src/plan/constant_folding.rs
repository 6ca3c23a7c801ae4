//! Constant loads at a block's end need no proxy if the code that runs next shows that they ran:
//! blocks with this one as the only predecessor, which record something before they call. If the
//! block branches, this must hold on all paths. Blocks in between may have no loads, or loads that
//! are counted in later blocks.

use crate::ir::BlockId;
use crate::ir::cfg::Cfg;
use crate::plan::function_plan::FunctionPlan;
use iced_x86::FlowControl;
use mgz_annotations_schema::sidecar::{NO_RECORD, SiteFlags};
use smallvec::SmallVec;

/// The regions at a block's ends, by number in the plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    /// The region at its start, if it has sites and only falls through to its end.
    pub(crate) first: Option<usize>,
    /// The region at its end, if it has sites.
    pub(crate) last: Option<usize>,
    /// True if the block has one region, with or without sites.
    pub(crate) one: bool,
}

/// Source: Chosen.
const MAX_COUNTING_REGIONS: usize = 8;
type Hosts = SmallVec<[usize; MAX_COUNTING_REGIONS]>;

/// Removes the proxies of such regions and counts their loads with later regions. `proxies`: by
/// region, true if it has only Constant loads and a proxy.
pub(crate) fn fold(graph: &Cfg, plan: &mut FunctionPlan, ends: &[Ends], proxies: &[bool]) {
    // A proxy that counts for other regions stays.
    let mut needed = vec![false; plan.regions.len()];
    let mut gone = vec![false; plan.regions.len()];
    for block in (0..graph.blocks.len()).rev() {
        let Some(last) = ends[block].last.filter(|&r| proxies[r] && !needed[r]) else {
            continue;
        };
        let mut hosts = Hosts::new();
        if !behind(graph, plan, (ends, &gone), block, &mut hosts) {
            continue;
        }
        gone[last] = true;
        let region = &mut plan.regions[last];
        region.records.clear();
        region.implied_const = 0;
        let loads = region.sites.len() as u32;
        for site in &mut region.sites {
            site.a = NO_RECORD;
            site.flags |= SiteFlags::IMPLIED;
        }
        for host in hosts {
            needed[host] = true;
            plan.regions[host].implied_const += loads;
        }
    }
}

/// Successors of a block, if they are known: one or two blocks.
fn ways(graph: &Cfg, block: usize) -> Option<SmallVec<[usize; 2]>> {
    let last = &graph.insns[graph.blocks[block].insns.end as usize - 1];
    let to = |at: u64| graph.block_at(at).map(|b| b.0 as usize);
    let mut all = SmallVec::new();
    if last.flow != FlowControl::Next {
        all.push(to(last.inst.near_branch_target())?);
    }
    if last.flow != FlowControl::UnconditionalBranch {
        all.push(to(last.next())?);
    }
    let known = matches!(
        last.flow,
        FlowControl::Next | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
    );
    (known && (all.len() < 2 || all[0] != all[1])).then_some(all)
}

/// Adds the regions that show that the end of a block ran. Returns true if such regions are on all
/// paths.
fn behind(
    graph: &Cfg,
    plan: &FunctionPlan,
    of: (&[Ends], &[bool]),
    block: usize,
    hosts: &mut Hosts,
) -> bool {
    let (ends, gone) = of;
    let Some(ways) = ways(graph, block) else {
        return false;
    };
    ways.into_iter().all(|next| {
        let (entered, at_ends) = (&graph.blocks[next], ends[next]);
        // Only forward paths are followed, so that the search ends.
        let alone = !entered.external_entry
            && entered.preds.len() == 1
            && entered.preds[0] == BlockId(block as u32)
            && next > block;
        if !alone || hosts.len() >= MAX_COUNTING_REGIONS {
            return false;
        }
        match at_ends.first {
            Some(region) if !gone[region] => {
                hosts.push(region);
                !plan.regions[region].records.is_empty()
            }
            first => {
                at_ends.one
                    && (first.is_some() || at_ends.last.is_none())
                    && behind(graph, plan, of, next, hosts)
            }
        }
    })
}
