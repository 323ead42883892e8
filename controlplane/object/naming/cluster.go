package naming

// Namespace holds every object of the system.
const Namespace = "longhorn-system"

// Ports. An instance manager gives ports of the range from InstancePortMin to InstancePortMax to
// its processes.
const (
	PortManager           = 9500
	PortConversionWebhook = 9501
	PortAdmissionWebhook  = 9502
	PortRecoveryBackend   = 9503
	PortProcessManager    = 8500
	PortProxy             = 8501
	PortDiskService       = 8502
	PortInstanceService   = 8503
	PortBackingImage      = 8000
	PortBackingImageSync  = 8001
	// PortBackingImageExport is where a data source receives the content of a volume.
	PortBackingImageExport = 8002
	PortShareManager       = 9600
	PortNFS                = 2049
	PortISCSI              = 3260
	PortSupportBundle      = 8080
	PortFrontend           = 80
	PortFrontendTarget     = 8000
	PortCSIMetrics         = 8000

	InstancePortMin = 10000
	InstancePortMax = 20000
	// EnginePortCount and ReplicaPortCount are how many ports one process takes; those of a replica
	// as the proposal shows them (10000 to 10014), though it uses two of them.
	EnginePortCount  = 1
	ReplicaPortCount = 15
)

// Services and the configurations of the webhooks.
const (
	ServiceBackend           = "longhorn-backend"
	ServiceFrontend          = "longhorn-frontend"
	ServiceAdmissionWebhook  = "longhorn-admission-webhook"
	ServiceRecoveryBackend   = "longhorn-recovery-backend"
	ServiceConversionWebhook = "longhorn-conversion-webhook"

	WebhookValidatorConfiguration = "longhorn-webhook-validator"
	WebhookMutatorConfiguration   = "longhorn-webhook-mutator"
	WebhookValidator              = "validator.longhorn.io"
	WebhookMutator                = "mutator.longhorn.io"
	WebhookValidationPath         = "/v1/webhook/validation"
	WebhookMutationPath           = "/v1/webhook/mutation"
	HealthPath                    = "/v1/healthz"
	// ManagerPath is what managers ask each other, at the webhooks' port.
	ManagerPath = "/v1/manager/"
)

// Secrets. SecretGRPCTLS may be a user's, for nodes and controllers; else it is made for nodes by
// the authority in SecretGRPCCA. SecretGRPCControl is what controllers show. All but a user's are
// ours.
const (
	SecretWebhookCA   = "longhorn-webhook-ca"
	SecretWebhookTLS  = "longhorn-webhook-tls"
	SecretRESTSession = "longhorn-rest-session"
	SecretGRPCTLS     = "longhorn-grpc-tls"
	SecretGRPCControl = "longhorn-grpc-control"
	SecretGRPCCA      = "longhorn-grpc-ca"
	SecretVolumeKeys  = "longhorn-volume-keys"
	// GRPCTLSPeerName is the name peers must have in their certificates.
	GRPCTLSPeerName = "longhorn-backend.longhorn-system"
)

// TokenAudience is that of tokens that are good at the managers alone.
const TokenAudience = "longhorn-backend"

// ConfigMapAuthority has the certificates of the authority by which the managers' REST API and
// webhooks are known, in AuthorityKey.
const (
	ConfigMapAuthority = "longhorn-ca"
	AuthorityKey       = "ca.crt"
)

// Other objects with fixed names.
const (
	ConfigMapDefaultSetting  = "longhorn-default-setting"
	ConfigMapDefaultResource = "longhorn-default-resource"
	ConfigMapStorageClass    = "longhorn-storageclass"
	DefaultSettingKey        = "default-setting.yaml"

	DaemonSetManager     = "longhorn-manager"
	DeploymentController = "longhorn-controller"
	// ProgramManager is the program of the DaemonSet's Pods.
	ProgramManager           = "manager"
	DaemonSetCSIPlugin       = "longhorn-csi-plugin"
	DeploymentDriverDeployer = "longhorn-driver-deployer"
	DeploymentUI             = "longhorn-ui"
	DeploymentCSIAttacher    = "csi-attacher"
	DeploymentCSIProvisioner = "csi-provisioner"
	DeploymentCSIResizer     = "csi-resizer"
	DeploymentCSISnapshotter = "csi-snapshotter"

	ServiceAccount        = "longhorn-service-account"
	ServiceAccountJobs    = "longhorn-recurring-job"
	ServiceAccountControl = "longhorn-controller"
	PriorityClass         = "longhorn-critical"
	StorageClass          = "longhorn"
	StaticStorageClass    = "longhorn-static"
	BackupTarget          = "default"
	CSIDriver             = "driver.longhorn.io"
	LeaderElectionLease   = "longhorn-manager-leader"
	SupportBundleAppLabel = "support-bundle-manager"
	SupportBundleLabel    = "rancher/supportbundle"
)

// InstanceManagerContainer is the container of the Pods of instance managers.
const InstanceManagerContainer = "instance-manager"
