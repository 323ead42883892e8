package metrics

import "slices"

// Type is what kind of metric it is, in the words of the exposition format.
type Type string

// Types of metrics.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Histogram Type = "histogram"
)

// Owner says which process reports a sample.
type Owner string

// Owners.
const (
	// ofLeader: the controller that leads, which reports all objects.
	ofLeader Owner = "the leader"
	// ofEach: every process about itself, agents of nodes too.
	ofEach Owner = "every process"
	// ofControllers: every controller.
	ofControllers Owner = "every controller"
	// ofWitness: the agent or the controller that answers an engine.
	ofWitness Owner = "the process that answers"
)

// Definition describes one metric.
type Definition struct {
	Name   string
	Type   Type
	Labels []string
	// Unit of the value: bytes, seconds, milli-CPU, 0/1, …
	Unit  string
	Owner Owner
	// Source is where the value comes from.
	Source string
	// Help is the text of the exposition.
	Help string
}

var (
	labelsVolume  = []string{"node", "volume", "pvc", "pvc_namespace"}
	labelsNode    = []string{"node"}
	labelsDisk    = []string{"node", "disk"}
	labelsDiskIO  = []string{"node", "disk", "disk_path"}
	labelsPod     = []string{"node", "instance_manager", "instance_manager_type"}
	labelsManager = []string{"node", "manager"}
	labelsBackup  = []string{"volume", "backup", "recurring_job"}
	labelsQueue   = []string{"name"}
)

// with is labels and more labels.
func with(labels []string, more ...string) []string { return append(slices.Clone(labels), more...) }

// Definitions are all metrics of our own and of the reference, in the order of
// docs/guide/metrics.md.
var Definitions = slices.Concat(volumeTable, nodeTable, diskTable, podTable, instanceTable, backupTable, clientTable,
	ownTable)

// definitions is Definitions by name.
var definitions = func() map[string]*Definition {
	out := map[string]*Definition{}
	for i := range Definitions {
		out[Definitions[i].Name] = &Definitions[i]
	}
	return out
}()

const (
	fromVolume   = "Volume"
	fromRates    = "`MetricsGet` of the engine's instance manager, kept for 2 s"
	fromUsage    = "metrics.k8s.io, kept for 30 s"
	fromNode     = "Node"
	fromEngine   = "Engine"
	fromReplica  = "Replica"
	fromStream   = "the engine's stream of states"
	fromPod      = "Pod"
	fromClient   = "client-go"
	fromQueue    = "client-go, controller-runtime"
	fromNobody   = "never: data engine v2"
	fromHealth   = "Node, from smartctl, once an hour"
	fromManagers = "the manager itself"
)

var volumeTable = []Definition{
	{"longhorn_volume_capacity_bytes", Gauge, labelsVolume, "bytes", ofLeader, fromVolume,
		"Configured size of the volume"},
	{"longhorn_volume_actual_size_bytes", Gauge, labelsVolume, "bytes", ofLeader, fromVolume,
		"Space that the head and the snapshots take on each replica"},
	{"longhorn_volume_state", Gauge, with(labelsVolume, "state"), "0/1", ofLeader, fromVolume,
		"1 for the state the volume is in"},
	{"longhorn_volume_robustness", Gauge, with(labelsVolume, "state"), "0/1", ofLeader, fromVolume,
		"1 for the robustness the volume has"},
	{"longhorn_volume_read_throughput", Gauge, labelsVolume, "bytes/s", ofLeader, fromRates,
		"Bytes read in the last whole second"},
	{"longhorn_volume_write_throughput", Gauge, labelsVolume, "bytes/s", ofLeader, fromRates,
		"Bytes written in the last whole second"},
	{"longhorn_volume_read_iops", Gauge, labelsVolume, "ops/s", ofLeader, fromRates,
		"Reads in the last whole second"},
	{"longhorn_volume_write_iops", Gauge, labelsVolume, "ops/s", ofLeader, fromRates,
		"Writes in the last whole second"},
	{"longhorn_volume_read_latency", Gauge, labelsVolume, "ns", ofLeader, fromRates,
		"Mean time of the reads of the last whole second, 0 without one"},
	{"longhorn_volume_write_latency", Gauge, labelsVolume, "ns", ofLeader, fromRates,
		"Mean time of the writes of the last whole second, 0 without one"},
	{"longhorn_volume_file_system_read_only", Gauge, labelsVolume, "1", ofLeader, fromEngine,
		"1 while the file system mounted on the volume has gone read-only"},
	{"longhorn_volume_last_backup_at", Gauge, labelsVolume, "Unix seconds", ofLeader, fromVolume,
		"Time of the newest backup that has ended well, 0 if there is none"},
	{"longhorn_volume_encrypted", Gauge, labelsVolume, "0/1", ofLeader, fromVolume, "1 if the volume is encrypted"},
}

var nodeTable = []Definition{
	{"longhorn_node_status", Gauge, with(labelsNode, "condition", "condition_reason"), "0/1", ofLeader, fromNode,
		"1 for a condition that is true"},
	{"longhorn_node_count_total", Gauge, nil, "count", ofLeader, fromNode, "Number of nodes known"},
	{"longhorn_node_cpu_usage_millicpu", Gauge, labelsNode, "milli-CPU", ofLeader, fromUsage, "CPU that the node uses"},
	{"longhorn_node_cpu_capacity_millicpu", Gauge, labelsNode, "milli-CPU", ofLeader, "Kubernetes Node",
		"CPU of the node that Pods may use"},
	{"longhorn_node_memory_usage_bytes", Gauge, labelsNode, "bytes", ofLeader, fromUsage, "Memory that the node uses"},
	{"longhorn_node_memory_capacity_bytes", Gauge, labelsNode, "bytes", ofLeader, "Kubernetes Node",
		"Memory of the node that Pods may use"},
	{"longhorn_node_storage_capacity_bytes", Gauge, labelsNode, "bytes", ofLeader, fromNode,
		"Size of the node's disks"},
	{"longhorn_node_storage_usage_bytes", Gauge, labelsNode, "bytes", ofLeader, fromNode,
		"Space in use on the node's disks, by whomever"},
	{"longhorn_node_storage_reservation_bytes", Gauge, labelsNode, "bytes", ofLeader, fromNode,
		"Space reserved for others on the node's disks"},
	{"longhorn_node_storage_scheduled_bytes", Gauge, labelsNode, "bytes", ofLeader, fromNode,
		"Sizes of the replicas scheduled to the node's disks"},
}

var diskTable = []Definition{
	{"longhorn_disk_capacity_bytes", Gauge, labelsDisk, "bytes", ofLeader, fromNode, "Size of the disk"},
	{"longhorn_disk_usage_bytes", Gauge, labelsDisk, "bytes", ofLeader, fromNode,
		"Space in use on the disk, by whomever"},
	{"longhorn_disk_reservation_bytes", Gauge, labelsDisk, "bytes", ofLeader, fromNode,
		"Space reserved for others on the disk"},
	{"longhorn_disk_status", Gauge, with(labelsDisk, "condition", "condition_reason"), "0/1", ofLeader, fromNode,
		"1 for a condition that is true"},
	{"longhorn_disk_health", Gauge, labelsDisk, "0/1", ofLeader, fromNode,
		"1 if all devices below the disk that say how they are have passed their own test"},
	{"longhorn_disk_health_attribute_raw", Gauge, with(labelsDisk, "attribute", "attribute_id"),
		"raw", ofLeader, fromHealth,
		"Raw value of a SMART attribute"},
	{"longhorn_disk_read_throughput", Gauge, labelsDiskIO, "bytes/s", ofLeader, fromNobody,
		"Bytes read from a block disk"},
	{"longhorn_disk_write_throughput", Gauge, labelsDiskIO, "bytes/s", ofLeader, fromNobody,
		"Bytes written to a block disk"},
	{"longhorn_disk_read_iops", Gauge, labelsDiskIO, "ops/s", ofLeader, fromNobody, "Reads from a block disk"},
	{"longhorn_disk_write_iops", Gauge, labelsDiskIO, "ops/s", ofLeader, fromNobody, "Writes to a block disk"},
	{"longhorn_disk_read_latency", Gauge, labelsDiskIO, "ns", ofLeader, fromNobody,
		"Mean time of reads from a block disk"},
	{"longhorn_disk_write_latency", Gauge, labelsDiskIO, "ns", ofLeader, fromNobody,
		"Mean time of writes to a block disk"},
}

var podTable = []Definition{
	{"ankole_instance_manager_status", Gauge, with(labelsPod, "condition", "condition_reason"), "0/1", ofLeader,
		"InstanceManager", "1 for a condition that is true"},
	{"longhorn_instance_manager_cpu_usage_millicpu", Gauge, labelsPod, "milli-CPU", ofLeader, fromUsage,
		"CPU that the instance manager uses"},
	{"longhorn_instance_manager_cpu_requests_millicpu", Gauge, labelsPod, "milli-CPU", ofLeader, fromPod,
		"CPU that the instance manager requests"},
	{"longhorn_instance_manager_memory_usage_bytes", Gauge, labelsPod, "bytes", ofLeader, fromUsage,
		"Memory that the instance manager uses"},
	{"longhorn_instance_manager_memory_requests_bytes", Gauge, labelsPod, "bytes", ofLeader, fromPod,
		"Memory that the instance manager requests"},
	{"longhorn_instance_manager_proxy_grpc_connection", Gauge, labelsPod, "count", ofLeader,
		"the manager itself; instance managers of type `engine` only",
		"Connections for rates from the leader to the proxy of an instance manager of type engine"},
	{"longhorn_manager_cpu_usage_millicpu", Gauge, labelsManager, "milli-CPU", ofLeader, fromUsage,
		"CPU that the Pod of a controller or an agent uses"},
	{"longhorn_manager_memory_usage_bytes", Gauge, labelsManager, "bytes", ofLeader, fromUsage,
		"Memory that the Pod of a controller or an agent uses"},
}

var instanceTable = []Definition{
	{"longhorn_engine_info", Gauge, []string{"engine", "volume", "node", "data_engine", "frontend", "image"},
		"1", ofLeader,
		fromEngine, "1 for each engine"},
	{"longhorn_engine_state", Gauge, []string{"engine", "volume", "node", "state"}, "0/1", ofLeader, fromEngine,
		"1 for the state the engine is in"},
	{"longhorn_engine_replica_mode", Gauge, []string{"engine", "volume", "replica", "mode"},
		"1", ofLeader, fromEngine,
		"1 for the mode that a replica has in its engine"},
	{"longhorn_engine_rebuild_progress", Gauge,
		[]string{"node", "engine", "rebuild_src", "rebuild_dst", "pvc", "pvc_namespace"}, "percent", ofLeader, fromEngine,
		"How much of a replica is rebuilt; one last sample of 100 when that is done"},
	{"longhorn_replica_info", Gauge, []string{"replica", "volume", "node", "disk_path", "data_engine"}, "1", ofLeader,
		fromReplica, "1 for each replica"},
	{"longhorn_replica_state", Gauge, []string{"replica", "volume", "node", "state"}, "0/1", ofLeader, fromReplica,
		"1 for the state the replica is in"},
	{"longhorn_snapshot_actual_size_bytes", Gauge, []string{"snapshot", "volume", "user_created"}, "bytes", ofLeader,
		"Snapshot", "Space that the snapshot takes on each replica"},
}

var backupTable = []Definition{
	{"longhorn_backup_actual_size_bytes", Gauge, labelsBackup, "bytes", ofLeader, "Backup", "Size of the backup"},
	{"longhorn_backup_state", Gauge, labelsBackup, "code", ofLeader, "Backup",
		"0 new, 1 Pending, 2 InProgress, 3 Completed, 4 Error, 5 Unknown"},
	{"longhorn_backup_uploaded_data_size_bytes", Gauge, labelsBackup, "bytes", ofLeader, "Backup",
		"Data of the backup that its target did not have"},
	{"longhorn_backup_volume_backups_count", Gauge, []string{"backup_volume"}, "count", ofLeader,
		"BackupVolume, Backup",
		"Backups of the backup volume"},
	{"longhorn_backup_target_backup_volume_count", Gauge, []string{"backup_target"}, "count", ofLeader,
		"BackupTarget, BackupVolume", "Backup volumes on the target"},
	{"longhorn_backing_image_actual_size_bytes", Gauge, []string{"node", "disk", "backing_image"}, "bytes", ofLeader,
		"BackingImage", "Size of a copy of the backing image; disk is the UUID"},
	{"longhorn_backing_image_state", Gauge, []string{"node", "disk", "backing_image"}, "code", ofLeader, "BackingImage",
		"0 pending, 1 starting, 2 in-progress, 3 ready-for-transfer, 4 ready, 5 failed, 6 failed-and-cleanup, 7 unknown"},
	{"longhorn_backup_backing_image_actual_size_bytes", Gauge, []string{"backup_backing_image"}, "bytes", ofLeader,
		"BackupBackingImage", "Size of the backup of a backing image"},
	{"longhorn_backup_backing_image_state", Gauge, []string{"backup_backing_image"}, "code", ofLeader,
		"BackupBackingImage",
		"0 new, 1 Pending, 2 InProgress, 3 Completed, 4 Error, 5 Unknown"},
}

var clientTable = []Definition{
	{"longhorn_rest_client_request_latency_seconds", Histogram, []string{"verb", "url"},
		"seconds", ofEach, fromClient,
		"Time that requests to the API server take"},
	{"longhorn_rest_client_rate_limiter_latency_seconds", Histogram, []string{"verb", "url"},
		"seconds", ofEach, fromClient,
		"Time that requests to the API server wait for the manager's own limit"},
	{"longhorn_rest_client_requests_total", Counter, []string{"code", "method", "host"}, "count", ofEach, fromClient,
		"Answers of the API server"},
	{"longhorn_workqueue_depth", Gauge, labelsQueue, "count", ofEach, fromQueue,
		"Objects that wait for their controller"},
	{"longhorn_workqueue_adds_total", Counter, labelsQueue, "count", ofEach, fromQueue,
		"Objects that were put into the queue"},
	{"longhorn_workqueue_queue_duration_seconds", Histogram, labelsQueue, "seconds", ofEach, fromQueue,
		"Time that objects wait in the queue"},
	{"longhorn_workqueue_work_duration_seconds", Histogram, labelsQueue, "seconds", ofEach, fromQueue,
		"Time that looks at objects take"},
	{"longhorn_workqueue_unfinished_work_seconds", Gauge, labelsQueue, "seconds", ofEach, fromQueue,
		"Time that the looks under way have taken so far, together"},
	{"longhorn_workqueue_longest_running_processor_seconds", Gauge, labelsQueue, "seconds", ofEach, fromQueue,
		"Time that the longest look under way has taken so far"},
	{"longhorn_workqueue_retries_total", Counter, labelsQueue, "count", ofEach, fromQueue,
		"Looks that were asked for again"},
}

var ownTable = []Definition{
	{"ankole_controller_leads", Gauge, []string{"node", "version"}, "0/1", ofControllers, fromManagers,
		"1 for the controller that leads and reports the objects"},
	{"ankole_manager_api_requests_total", Counter, []string{"client", "verb", "resource"},
		"count", ofEach, fromManagers,
		"Requests to the API server by the part of the manager that sent them, verb and resource"},
	{"ankole_reconcile_seconds", Histogram, []string{"controller"}, "seconds", ofEach, "controller-runtime",
		"Time of one step of a controller: gather, decide, change"},
	{"ankole_queue_depth", Gauge, []string{"controller"}, "count", ofEach, fromQueue,
		"Objects that wait for their controller"},
	{"ankole_rebuild_done_bytes", Gauge, []string{"node", "engine", "volume", "rebuild_dst"},
		"bytes", ofLeader, fromStream,
		"What the rebuild under way has done"},
	{"ankole_rebuild_total_bytes", Gauge, []string{"node", "engine", "volume", "rebuild_dst"},
		"bytes", ofLeader, fromStream,
		"What the rebuild under way has to do"},
	{"ankole_engine_suspended", Gauge, []string{"node", "engine", "volume"}, "0/1", ofLeader, fromEngine,
		"1 while the engine holds I/O back"},
	{"ankole_upgrade_pause_seconds", Gauge, []string{"node", "engine", "volume"}, "seconds", ofLeader, fromStream,
		"How long users of the volume waited in the live upgrade by which the engine's process came"},
	{"ankole_backup_volume_faults", Gauge, []string{"backup_volume", "backup_target", "volume"}, "count", ofLeader,
		"BackupVolume", "Blocks and records that the latest verification that is over has found damaged or missing"},
	{"ankole_backup_volume_verified_at", Gauge, []string{"backup_volume", "backup_target", "volume"}, "Unix seconds",
		ofLeader, "BackupVolume", "Time of the end of that verification"},
	{"ankole_backup_backing_image_faults", Gauge, []string{"backup_backing_image", "backup_target", "backing_image"},
		"count", ofLeader, "BackupBackingImage",
		"Blocks and records of the image that its latest verification that is over has found damaged or missing"},
	{"ankole_backup_backing_image_verified_at", Gauge,
		[]string{"backup_backing_image", "backup_target", "backing_image"}, "Unix seconds", ofLeader, "BackupBackingImage",
		"Time of the end of that verification"},
	{"ankole_scrub_checks_total", Counter, []string{"result"}, "count", ofLeader, "the controller of integrity",
		"Checks of snapshots that have ended: good, damaged, or void (without a result)"},
	{"ankole_scrub_findings_total", Counter, []string{"outcome"}, "count", ofLeader, "the controller of integrity",
		"Damage that checks of snapshots have found: pieces that were repaired, copies that are left damaged"},
	{"ankole_witness_answer_seconds", Histogram, []string{"call", "code"}, "seconds", ofWitness, "the witness relay",
		"Time that answers to engines take, by call and gRPC code"},
}
