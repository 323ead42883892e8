package volume

import (
	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
)

// balancing is how the volume's replicas are to be balanced: the volume's word, else the setting's.
func (p *pass) balancing() v1beta2.ReplicaAutoBalance {
	if own := p.v.Spec.ReplicaAutoBalance; own != "" && own != v1beta2.ReplicaAutoBalanceIgnored {
		return own
	}
	return v1beta2.ReplicaAutoBalance(p.s.Settings.String(setting.ReplicaAutoBalance))
}

func (p *pass) balances() bool {
	mode := p.balancing()
	return mode == v1beta2.ReplicaAutoBalanceLeastEffort || mode == v1beta2.ReplicaAutoBalanceBestEffort
}

// balance gives a complete and healthy volume one replica more where that spreads it better. The
// replica is built like any other, with a slot of its node; cleanup gives one up once it is in
// sync.
func (p *pass) balance() loop.Change {
	if !p.balances() || p.v.Status.Robustness != v1beta2.VolumeRobustnessHealthy {
		return nil
	}
	wanted, live := p.v.Spec.NumberOfReplicas, p.live()
	if len(live) != wanted || count(live, usable) != wanted || count(live, healthy) != wanted {
		return nil
	}
	where, ok := schedule.Balance(p.request(schedule.Replica{}), wanted)
	if !ok {
		return nil
	}
	hardNode := ""
	if p.balancing() == v1beta2.ReplicaAutoBalanceBestEffort {
		hardNode = where.NodeID // pressure on a disk would let it be placed on a node in use
	}
	p.changeEvents = append(p.changeEvents, loop.Event{Reason: naming.EventCreate,
		Message: "Creating a replica on node " + where.NodeID + " to spread the volume's replicas better"})
	return loop.Create{Object: p.newReplica(hardNode, v1beta2.MaxRebuildRetryCount)}
}
