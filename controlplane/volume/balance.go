package volume

import (
	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
)

// balancing is how the volume's replicas are to be balanced: the volume's word, else the setting's.
func (p *pass) balancing() v1beta2.ReplicaAutoBalance { return balancingOf(p.v, p.s.Settings) }

func balancingOf(v *v1beta2.Volume, settings setting.Values) v1beta2.ReplicaAutoBalance {
	if own := v.Spec.ReplicaAutoBalance; own != "" && own != v1beta2.ReplicaAutoBalanceIgnored {
		return own
	}
	return v1beta2.ReplicaAutoBalance(settings.String(setting.ReplicaAutoBalance))
}

func (p *pass) balances() bool {
	mode := p.balancing()
	return mode == v1beta2.ReplicaAutoBalanceLeastEffort || mode == v1beta2.ReplicaAutoBalanceBestEffort
}

// balance gives a complete and healthy volume one replica more where that spreads it better. The
// replica is built like any other, with a slot of its node; cleanup gives one up once it is in
// sync.
func (p replenishing) balance() loop.Change {
	if !p.balances() || p.v.Status.Robustness != v1beta2.VolumeRobustnessHealthy {
		return nil
	}
	wanted, live := p.v.Spec.NumberOfReplicas, p.live()
	if len(live) != wanted || count(live, usable) != wanted || count(live, healthy) != wanted {
		return nil
	}
	where, ok := schedule.Balance(p.request(schedule.Replica{}), p.howBalanced())
	if !ok {
		return nil
	}
	hardNode := ""
	if p.balancing() == v1beta2.ReplicaAutoBalanceBestEffort {
		hardNode = where.NodeID // pressure on a disk would let it be placed on a node in use
	}
	p.changeEvents = append(p.changeEvents, loop.Event{Reason: naming.EventCreate,
		Message: "Creating a replica on node " + where.NodeID + " to spread the volume's replicas better"})
	return loop.Create{Object: creating(p).newReplica(hardNode, v1beta2.MaxRebuildRetryCount)}
}

// howBalanced says what the scheduler balances for: a local replica in sync stays where the volume
// wants one.
func (p *pass) howBalanced() schedule.Balancing {
	b := schedule.Balancing{Wanted: p.v.Spec.NumberOfReplicas, MayLeave: p.s.MayLeave,
		Best: p.balancing() == v1beta2.ReplicaAutoBalanceBestEffort}
	if p.localStays() {
		b.Local = p.v.Spec.NodeID
	}
	return b
}

// localStays says whether the volume wants a replica on its own node and has one in sync.
func (p *pass) localStays() bool {
	local := p.localReplica()
	return p.v.Spec.DataLocality == v1beta2.DataLocalityBestEffort && local != nil &&
		p.mode(local) == v1beta2.ReplicaModeRW
}
