package rest

import (
	"strings"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/access"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
	"ankole.storage/rest/volume"
)

// rights is the one table of what callers need: for each method of a route ("GET /v1/volumes"),
// each action ("attach /v1/volumes/{name}") and each stream ("stream volumes") the verb and the
// kind whose objects it reads or changes, as RBAC has them. With "{name}" behind the kind, the
// right to the one object that the path names is enough. Nothing behind the operation: whoever is
// let in may do it. Rights between which there is "and" are all needed. Open routes are not here.
//
// An operation needs the right to what it changes: attaching changes the VolumeAttachment, taking a
// snapshot makes a Snapshot, reverting changes the Volume. What an answer shows of other kinds
// besides (the replicas of a volume) is part of the object that is asked for.
var rights = parseRights(`
GET /v1
GET /v1/apiversions
GET /v1/apiversions/v1
GET /v1/schemas
GET /v1/schemas/{name}

GET /v1/volumes: list volumes
POST /v1/volumes: create volumes
GET /v1/volumes/{name}: get volumes/{name}
DELETE /v1/volumes/{name}: delete volumes/{name}
GET /v1/volumerates/{name}: get volumes/{name}
GET /v1/dataloss/{name}: get volumes/{name}
POST /v1/dataloss/{name}: update volumes/{name}
GET /v1/backupdamage/{name}: get volumes/{name}
POST /v1/backupdamage/{name}: update volumes/{name}
POST /v1/devicekeepers/{name}: update volumes/status/{name}
attach /v1/volumes/{name}: update volumeattachments/{name}
detach /v1/volumes/{name}: update volumeattachments/{name}
salvage /v1/volumes/{name}: update volumes/{name}
activate /v1/volumes/{name}: update volumes/{name}
replicaRemove /v1/volumes/{name}: delete replicas
expand /v1/volumes/{name}: update volumes/{name}
cancelExpansion /v1/volumes/{name}: update volumes/{name}
trimFilesystem /v1/volumes/{name}: update volumes/{name}
engineUpgrade /v1/volumes/{name}: update volumes/{name}
snapshotCreate /v1/volumes/{name}: create snapshots
snapshotList /v1/volumes/{name}: list snapshots
snapshotGet /v1/volumes/{name}: get snapshots
snapshotDelete /v1/volumes/{name}: delete snapshots
snapshotRevert /v1/volumes/{name}: update volumes/{name}
snapshotPurge /v1/volumes/{name}: delete snapshots
snapshotBackup /v1/volumes/{name}: create backups
snapshotCRCreate /v1/volumes/{name}: create snapshots
snapshotCRList /v1/volumes/{name}: list snapshots
snapshotCRGet /v1/volumes/{name}: get snapshots
snapshotCRDelete /v1/volumes/{name}: delete snapshots
pvCreate /v1/volumes/{name}: create persistentvolumes and get volumes/{name}
pvcCreate /v1/volumes/{name}: create persistentvolumeclaims and update persistentvolumes and get volumes/{name}
recurringJobAdd /v1/volumes/{name}: update volumes/{name}
recurringJobList /v1/volumes/{name}: get volumes/{name}
recurringJobDelete /v1/volumes/{name}: update volumes/{name}

GET /v1/volumeattachments: list volumeattachments
GET /v1/volumeattachments/{name}: get volumeattachments/{name}
GET /v1/nodes: list nodes
GET /v1/nodes/{name}: get nodes/{name}
PUT /v1/nodes/{name}: update nodes/{name}
DELETE /v1/nodes/{name}: delete nodes/{name}
diskUpdate /v1/nodes/{name}: update nodes/{name}
GET /v1/disktags: list nodes
GET /v1/nodetags: list nodes
GET /v1/settings: list settings
GET /v1/settings/{name}: get settings/{name}
PUT /v1/settings/{name}: update settings/{name}
GET /v1/engineimages: list engineimages
POST /v1/engineimages: create engineimages
GET /v1/engineimages/{name}: get engineimages/{name}
DELETE /v1/engineimages/{name}: delete engineimages/{name}
GET /v1/instancemanagers: list instancemanagers
GET /v1/instancemanagers/{name}: get instancemanagers/{name}
GET /v1/instancelogs/{name}: get instancemanagers
GET /v1/orphans: list orphans
GET /v1/orphans/{name}: get orphans/{name}
DELETE /v1/orphans/{name}: delete orphans/{name}
GET /v1/recurringjobs: list recurringjobs
POST /v1/recurringjobs: create recurringjobs
GET /v1/recurringjobs/{name}: get recurringjobs/{name}
PUT /v1/recurringjobs/{name}: update recurringjobs/{name}
DELETE /v1/recurringjobs/{name}: delete recurringjobs/{name}

GET /v1/backuptargets: list backuptargets
POST /v1/backuptargets: create backuptargets
GET /v1/backuptargets/{name}: get backuptargets/{name}
DELETE /v1/backuptargets/{name}: delete backuptargets/{name}
PUT /v1/backuptargets: update backuptargets
backupTargetUpdate /v1/backuptargets/{name}: update backuptargets
backupTargetSync /v1/backuptargets/{name}: update backuptargets/{name}
PUT /v1/backupvolumes: update backupvolumes
DELETE /v1/backupvolumes/{name}: delete backupvolumes/{name}
backupVolumeSync /v1/backupvolumes/{name}: update backupvolumes/{name}
backupDelete /v1/backupvolumes/{name}: delete backups
GET /v1/backupvolumes: list backupvolumes
GET /v1/backupvolumes/{name}: get backupvolumes/{name}
backupList /v1/backupvolumes/{name}: list backups
backupListByVolume /v1/backupvolumes/{name}: list backups
backupGet /v1/backupvolumes/{name}: get backups
GET /v1/backupverifications/{name}: get backupvolumes/{name}
POST /v1/backupverifications/{name}: update backupvolumes/{name}
GET /v1/backupimageverifications/{name}: get backupbackingimages/{name}
POST /v1/backupimageverifications/{name}: update backupbackingimages/{name}
GET /v1/backupbackingimages: list backupbackingimages
GET /v1/backupbackingimages/{name}: get backupbackingimages/{name}
DELETE /v1/backupbackingimages/{name}: delete backupbackingimages/{name}
backupBackingImageRestore /v1/backupbackingimages/{name}: create backingimages and get backupbackingimages/{name}
GET /v1/backingimages: list backingimages
POST /v1/backingimages: create backingimages
GET /v1/backingimages/{name}: get backingimages/{name}
DELETE /v1/backingimages/{name}: delete backingimages/{name}
GET /v1/backingimages/{name}/download: get backingimages/{name}
backingImageCleanup /v1/backingimages/{name}: update backingimages/{name}
updateMinNumberOfCopies /v1/backingimages/{name}: update backingimages/{name}
backupBackingImageCreate /v1/backingimages/{name}: create backupbackingimages
upload /v1/backingimages/{name}: update backingimages/{name}
GET /v1/systembackups: list systembackups
GET /v1/systembackups/{name}: get systembackups/{name}
GET /v1/systemrestores: list systemrestores
GET /v1/systemrestores/{name}: get systemrestores/{name}
GET /v1/supportbundles: list supportbundles
GET /v1/supportbundles/{node}/{name}: get supportbundles/{name}
GET /v1/events: list events

stream volumes: watch volumes
stream volumeattachments: watch volumeattachments
stream nodes: watch nodes
stream settings: watch settings
stream engineimages: watch engineimages
stream orphans: watch orphans
stream recurringjobs: watch recurringjobs
stream backuptargets: watch backuptargets
stream backupvolumes: watch backupvolumes
stream backups: watch backups
stream backupbackingimages: watch backupbackingimages
stream backingimages: watch backingimages
stream systembackups: watch systembackups
stream systemrestores: watch systemrestores
stream events: watch events
`)

// otherKinds are the kinds that are not of ours, by the group that they are in. Those of other
// namespaces than ours, or of none, need the right in the whole cluster.
var otherKinds = map[string]access.Need{
	"events":                 {},
	"persistentvolumes":      {Everywhere: true},
	"persistentvolumeclaims": {Everywhere: true},
}

// parseRights reads the table. Each update of a volume is the right to update the volume.
func parseRights(table string) map[string][]access.Need {
	out := map[string][]access.Need{}
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		operation, needed, _ := strings.Cut(line, ": ")
		if operation == "" {
			continue
		}
		for right := range strings.SplitSeq(needed, " and ") {
			out[operation] = append(out[operation], parseRight(right))
		}
	}
	for _, action := range volume.UpdateActions() {
		out[action+" /v1/volumes/{name}"] = []access.Need{{Verb: "update", Group: lh.Group,
			Resource: resource.Path(resource.TypeVolume), Name: serve.NamedObject}}
	}
	return out
}

func parseRight(right string) (n access.Need) {
	if right == "" {
		return n
	}
	verb, kind, _ := strings.Cut(right, " ")
	n.Verb, n.Group = verb, lh.Group
	// A part of an object, as in volumes/status, comes with the kind.
	n.Resource, n.Name, _ = strings.Cut(kind, "/")
	if part, name, ok := strings.Cut(n.Name, "/"); ok {
		n.Resource, n.Name = n.Resource+"/"+part, name
	}
	if other, ok := otherKinds[n.Resource]; ok {
		n.Group, n.Everywhere = other.Group, other.Everywhere
	}
	return n
}
