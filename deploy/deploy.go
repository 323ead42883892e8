// Package deploy holds the Kubernetes objects that make up an installation, as template files.
//
// The files in manifests/ are the one place where the installation is described: standalone applies
// them at every start, and the chart and the plain manifest are made from them. They use the
// delimiters and the `.Values` convention of Helm charts. The manager itself installs the custom
// resource definitions.
package deploy

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Values fills the templates. The chart has the same values under the same names with a small first
// letter, and their comments as its documentation.
type Values struct {
	// Namespace of everything.
	Namespace string
	// ManagerImage is the image of the manager, which runs on every node.
	ManagerImage string
	// EngineImage is the image that new volumes use, also known as the default engine image.
	EngineImage string
	// InstanceManagerImage is the image of the Pods in which engines and replicas run.
	InstanceManagerImage string
	// BackingImageManagerImage is the image of the Pods that keep backing images.
	BackingImageManagerImage string
	// ImagePullPolicy of all Pods: IfNotPresent, Always or Never.
	ImagePullPolicy string
	// Global is what a chart may share with others of an installation.
	Global Global
	// PrivateRegistry is a registry of one's own, with the same images under the same paths.
	PrivateRegistry PrivateRegistry
	// PreUpgradeChecker is about what is judged before an upgrade or a rollback by Helm.
	PreUpgradeChecker PreUpgradeChecker
	// ImagePullSecrets names the secrets for a private registry. Pods that the manager makes follow
	// setting registry-secret.
	ImagePullSecrets []string
	// WebhookURL is where the API server reaches the manager's webhooks when the cluster has no
	// Services; empty on a real cluster.
	WebhookURL string
	// PortForward has managers listen at the loopback address of their Pod too, which is where kubectl
	// port-forward connects to. Nodes of a standalone cluster share the machine's.
	PortForward bool
	// RestPlaintext has the REST API answer requests without TLS from anywhere, for clients that know
	// none: their tokens can be read on the way. Metrics and health need no TLS in any case.
	RestPlaintext bool
	// MutualTLS has the controllers make the certificates by which they and instance managers know
	// each other, Secrets longhorn-grpc-control and longhorn-grpc-tls, unless a user has made the
	// latter.
	MutualTLS bool
	// NetworkPolicies restricts who reaches the Pods: those of volumes are reached by managers and by
	// each other only, those of the CSI driver by nobody.
	NetworkPolicies bool
	// RestFrom, with networkPolicies, lists who reaches the REST API and metrics beside the Pods of
	// this namespace, as the peers of a NetworkPolicy, such as
	// [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}].
	// Empty: everybody; whoever asks shows a token in any case, but for health and metrics.
	RestFrom []map[string]any
	// Service is how the web UI is reached.
	Service Service
	// Ingress is a way to the REST API from outside of the cluster. With restFrom its controller must
	// be among those. Whoever comes by it shows a token, as everybody.
	Ingress Ingress
	// AnonymousAccess is setting api-anonymous-access: what the REST API does for callers without a
	// token.
	AnonymousAccess string
	// AllowedImageRegistries are registries, or paths in them, from which images of engines and
	// instance managers may be, such as registry.example.com/storage. Empty: those of the images
	// above.
	AllowedImageRegistries []string
	// AllowedDiskPaths are directories of nodes in which disks may be. Disks that are known already
	// stay. Empty: any.
	AllowedDiskPaths []string
	// AllowedBackupDirectories are directories, as the Pods of instance managers see them, in which
	// backup targets of kind vfs may be: a share that is mounted on every node, for instance. Empty:
	// none.
	AllowedBackupDirectories []string
	// BackupTargetSecrets are the Secrets of this namespace that backup targets may name for their
	// credentials. Managers read no other Secret of users, but the next ones.
	BackupTargetSecrets []string
	// BackingImageSecrets are the Secrets of this namespace that have keys of encrypted backing
	// images: managers read them to encrypt or decrypt an image. Empty: none.
	BackingImageSecrets []string
	// DefaultBackupStore is where backup target default is. What is set later stands.
	DefaultBackupStore DefaultBackupStore
	// ServiceAccount is the one of agents and instance managers.
	ServiceAccount ServiceAccount
	// DefaultSettings are values of other settings for a new installation, such as
	// storage-network: kube-system/storage. What is set later stands.
	DefaultSettings map[string]string
	// Controller is about the Pods of the controllers, of REST and of the webhooks.
	Controller Controller
	// ManagerArgs are appended to the command lines of agents and controllers.
	ManagerArgs []string
	// DeployCSI adds the CSI driver, its sidecars and the StorageClasses. A standalone cluster has no
	// kubelet that would call them.
	DeployCSI bool
	// Persistence is about the StorageClass longhorn. It is made at the installation; an upgrade
	// leaves it as it is then, whoever has changed it, also deleted and made again.
	Persistence Persistence
	// Csi is about the sidecars of the CSI driver.
	Csi Csi
	// SidecarResources are the requests and limits of each sidecar of the CSI driver.
	SidecarResources map[string]any
	// ManagerResources are the requests and limits of the agent of a node; measured likewise.
	ManagerResources map[string]any
	// Metrics is about who collects the metrics.
	Metrics Metrics
	// DriverImage is the image of the CSI driver.
	DriverImage string
	// AttacherImage is the image of Kubernetes' sidecar that attaches volumes.
	AttacherImage string
	// ProvisionerImage is the image of Kubernetes' sidecar that makes volumes for claims.
	ProvisionerImage string
	// ResizerImage is the image of Kubernetes' sidecar that expands volumes.
	ResizerImage string
	// SnapshotterImage is the image of Kubernetes' sidecar that takes snapshots.
	SnapshotterImage string
	// KubeletDir is the kubelet's root directory on every node.
	KubeletDir string
	// StorageCapacity has the scheduler look at what room there is for claims that wait for a Pod; it
	// goes with setting csi-storage-capacity-tracking.
	StorageCapacity bool
	// Tolerations of the Pods of the manager and of the CSI sidecars; those of the driver tolerate
	// every taint. Pods that the manager makes follow setting taint-toleration.
	Tolerations []map[string]any
	// NodeSelector of the Pods of the manager and of the CSI sidecars; those of the driver are on
	// every node. Pods that the manager makes follow setting system-managed-components-node-selector.
	NodeSelector map[string]string
}

// Global is what a chart may share with others.
type Global struct {
	// Cattle is what Rancher sets.
	Cattle Cattle
}

// Cattle is what Rancher sets.
type Cattle struct {
	// SystemDefaultRegistry takes the place of the registry in the names of all images, where
	// privateRegistry.registryUrl is empty.
	SystemDefaultRegistry string
}

// PrivateRegistry is a registry of one's own.
type PrivateRegistry struct {
	// RegistryUrl takes the place of the registry in the names of all images, such as
	// registry.example:5000/mirror.
	RegistryUrl string
	// RegistrySecret names the secret for it, beside imagePullSecrets. It becomes setting
	// registry-secret of a new installation.
	RegistrySecret string
	// CreateSecret makes that secret, of the user and the password; otherwise it must be there.
	CreateSecret bool
	// RegistryUser is the user's name.
	RegistryUser string
	// RegistryPasswd is the user's password.
	RegistryPasswd string
}

// Controller is about the Pods of the controllers.
type Controller struct {
	// Replicas is their number. One leads; all answer REST and reviews.
	Replicas int
	// Resources are the requests and limits of each. The limit is some times what the leader needed at
	// most for 1,000 volumes (docs/benchmarks.md).
	Resources map[string]any
}

// PreUpgradeChecker is about what is judged before an upgrade.
type PreUpgradeChecker struct {
	// JobEnabled runs a Job before anything is changed, which fails where the managers' image is of a
	// version that the installation cannot go to. Switch it off where an installer runs hooks at other
	// times, as Argo CD does.
	JobEnabled bool
	// UpgradeVersionCheck is what the Job judges by: the version. Without it there is no Job either.
	// Managers that are older than the newest that has led end by themselves in any case.
	UpgradeVersionCheck bool
}

// DefaultBackupStore is what backup target default is made with; it is taken over again when it
// changes here.
type DefaultBackupStore struct {
	// BackupTarget is the URL of the store, such as s3://backups@eu-central-1/. Empty: none.
	BackupTarget string
	// BackupTargetCredentialSecret names the Secret with the credentials, one of backupTargetSecrets.
	BackupTargetCredentialSecret string
	// PollInterval is how often the store is looked at, in seconds; 0: when somebody asks.
	PollInterval int
}

// ServiceAccount is the account of agents and instance managers.
type ServiceAccount struct {
	// Annotations may name its role before a backup store, such as eks.amazonaws.com/role-arn. Pods
	// of instance managers that run already get it when they are made anew.
	Annotations map[string]string
}

// Service is how the web UI is reached.
type Service struct {
	// Ui is Service longhorn-frontend.
	Ui UiService
}

// UiService is a Service that leads to the web UI, which the controllers serve beside the REST API.
type UiService struct {
	// Type says from where it is reached: ClusterIP, NodePort or LoadBalancer. Who comes from another
	// machine has to come by https, unless restPlaintext is on.
	Type string
	// NodePort is the port of nodes with the other two types; 0: one that Kubernetes chooses.
	NodePort int
	// Annotations are for who makes load balancers.
	Annotations map[string]string
}

// Ingress is a way to the REST API from outside of the cluster.
type Ingress struct {
	// Enabled makes Ingress longhorn-ingress.
	Enabled bool
	// IngressClassName is whose it is; empty: the cluster's default.
	IngressClassName string
	// Host is the name under which it is reached; empty: any.
	Host string
	// Path is which paths it passes on; the API does not expect a prefix.
	Path string
	// PathType says how path is compared: Prefix, Exact or ImplementationSpecific.
	PathType string
	// Tls has it answer by TLS, with the certificate of tlsSecret.
	Tls bool
	// TlsSecret names the secret with the certificate.
	TlsSecret string
	// Annotations are for its controller.
	Annotations map[string]string
}

// Persistence is about the StorageClass longhorn.
type Persistence struct {
	// DefaultClass makes it the class of claims that name none.
	DefaultClass bool
	// DefaultClassReplicaCount is how many replicas its volumes have.
	DefaultClassReplicaCount int
	// DefaultFsType is the file system of its volumes: ext4 or xfs.
	DefaultFsType string
	// DefaultMkfsParams are options of the program that makes the file system.
	DefaultMkfsParams string
	// DefaultDataLocality is disabled, best-effort or strict-local.
	DefaultDataLocality string
	// ReclaimPolicy is Delete or Retain.
	ReclaimPolicy string
	// VolumeBindingMode is Immediate or WaitForFirstConsumer.
	VolumeBindingMode string
	// Migratable has volumes of mode ReadWriteMany and volume mode Block migrate live.
	Migratable bool
	// DefaultNodeSelector restricts its replicas to nodes with tags.
	DefaultNodeSelector Selector
	// DefaultDiskSelector restricts its replicas to disks with tags.
	DefaultDiskSelector Selector
	// RecurringJobSelector gives its volumes recurring jobs.
	RecurringJobSelector JobSelector
}

// Selector names tags.
type Selector struct {
	// Enable it.
	Enable bool
	// Selector is the tags, separated by commas.
	Selector string
}

// JobSelector names recurring jobs and groups of them.
type JobSelector struct {
	// Enable it.
	Enable bool
	// JobList is in JSON, such as [{"name":"nightly","isGroup":true}].
	JobList string
}

// Csi is how many Pods each sidecar has.
type Csi struct {
	// AttacherReplicaCount is the number of Pods of the attacher.
	AttacherReplicaCount int
	// ProvisionerReplicaCount is the number of Pods of the provisioner.
	ProvisionerReplicaCount int
	// ResizerReplicaCount is the number of Pods of the resizer.
	ResizerReplicaCount int
	// SnapshotterReplicaCount is the number of Pods of the snapshotter.
	SnapshotterReplicaCount int
	// SecretsOfAllNamespaces lets the provisioner read Secrets anywhere, for classes that name one of
	// another namespace by csi.storage.k8s.io/provisioner-secret-namespace. False: those of the
	// system's namespace alone.
	SecretsOfAllNamespaces bool
}

// Metrics is about who collects the metrics.
type Metrics struct {
	// ServiceMonitor is for the Prometheus operator.
	ServiceMonitor ServiceMonitor
}

// ServiceMonitor is an object of the Prometheus operator.
type ServiceMonitor struct {
	// Enabled makes it; the operator's kinds must be there.
	Enabled bool
	// AdditionalLabels are those by which the operator finds it.
	AdditionalLabels map[string]string
	// Interval is how often metrics are read, such as 30s; empty: as the operator has it.
	Interval string
}

// DefaultValues are those of an installation that asks its users who they are.
func DefaultValues() Values {
	return Values{
		Namespace:                "longhorn-system",
		ManagerImage:             "ankole/manager:dev",
		EngineImage:              "ankole/engine:dev",
		InstanceManagerImage:     "ankole/instance-manager:dev",
		BackingImageManagerImage: "ankole/backing-image-manager:dev",
		ImagePullPolicy:          "IfNotPresent",
		PreUpgradeChecker:        PreUpgradeChecker{JobEnabled: true, UpgradeVersionCheck: true},
		PortForward:              true,
		MutualTLS:                true,
		NetworkPolicies:          true,
		Service:                  Service{Ui: UiService{Type: "ClusterIP"}},
		Ingress:                  Ingress{Path: "/", PathType: "Prefix"},
		AnonymousAccess:          "none",
		AllowedDiskPaths:         []string{"/var/lib/longhorn", "/mnt", "/media", "/srv", "/data", "/disks"},
		BackupTargetSecrets:      []string{"aws-secret", "azblob-secret", "cifs-secret", "minio-secret"},
		DefaultBackupStore:       DefaultBackupStore{PollInterval: 300},
		Controller:               Controller{Replicas: 3, Resources: memory("128Mi", "1Gi")},
		ManagerResources:         memory("64Mi", "512Mi"),
		DeployCSI:                true,
		Persistence: Persistence{DefaultClass: true, DefaultClassReplicaCount: 3, DefaultFsType: "ext4",
			DefaultDataLocality: "disabled", ReclaimPolicy: "Delete", VolumeBindingMode: "Immediate"},
		Csi: Csi{AttacherReplicaCount: 3, ProvisionerReplicaCount: 3, ResizerReplicaCount: 3,
			SnapshotterReplicaCount: 3},
		DriverImage:      "ankole/csi:dev",
		AttacherImage:    "registry.k8s.io/sig-storage/csi-attacher:v4.13.0",
		ProvisionerImage: "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0",
		ResizerImage:     "registry.k8s.io/sig-storage/csi-resizer:v2.3.0",
		SnapshotterImage: "registry.k8s.io/sig-storage/csi-snapshotter:v8.7.0",
		KubeletDir:       "/var/lib/kubelet",
	}
}

// memory are resources of a container.
func memory(request, limit string) map[string]any {
	return map[string]any{"requests": map[string]any{"memory": request}, "limits": map[string]any{"memory": limit}}
}

// Templates returns the template files by name.
func Templates() (map[string]string, error) {
	names, err := fs.Glob(manifests, "manifests/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	files := map[string]string{}
	for _, name := range names {
		text, err := manifests.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		files[path.Base(name)] = string(text)
	}
	return files, nil
}

// Files with what is no part of an installation.
const (
	uninstallation = "90-uninstall.yaml"   // what removes one
	preUpgrade     = "80-pre-upgrade.yaml" // what Helm runs before it upgrades one
)

// Render returns one YAML document per object of an installation, in the order in which they must
// be applied.
func Render(v Values) ([][]byte, error) {
	return renderFiles(v, func(file string) bool { return file != uninstallation && file != preUpgrade })
}

// RenderUninstallation returns the objects that remove an installation, in the same form.
func RenderUninstallation(v Values) ([][]byte, error) {
	return renderFiles(v, func(file string) bool { return file == uninstallation })
}

// RenderPreUpgrade returns the objects that judge an upgrade before it is begun, in the same form.
func RenderPreUpgrade(v Values) ([][]byte, error) {
	return renderFiles(v, func(file string) bool { return file == preUpgrade })
}

func renderFiles(v Values, which func(file string) bool) ([][]byte, error) {
	files, err := Templates()
	if err != nil {
		return nil, err
	}
	var docs [][]byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !which(name) {
			continue
		}
		t, err := template.New(name).Option("missingkey=error").
			Funcs(template.FuncMap{"quote": quote, "toJson": toJSON, "image": image}).Parse(files[name])
		if err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		var b bytes.Buffer
		if err := t.Execute(&b, map[string]Values{"Values": v}); err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		for doc := range strings.SplitSeq(b.String(), "\n---\n") {
			if strings.TrimSpace(doc) != "" {
				docs = append(docs, []byte(doc))
			}
		}
	}
	return docs, nil
}

// image is the quoted name of an image, in the registry that the values name.
func image(v Values, name string) string {
	registry := v.PrivateRegistry.RegistryUrl
	if registry == "" {
		registry = v.Global.Cattle.SystemDefaultRegistry
	}
	if registry != "" {
		name = strings.TrimSuffix(registry, "/") + "/" + host.ReplaceAllString(name, "")
	}
	return quote(name)
}

// Registry is a regular expression of the registry in an image's name, if it has one.
const Registry = `^([^/]*[.:][^/]*|localhost)/`

var host = regexp.MustCompile(Registry)

// quote and toJSON are the functions of that name that charts have.
func quote(s string) string { return fmt.Sprintf("%q", s) }

func toJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}
