"""The experiments of the paper on DDS implementations (S3), with `heliograph.facades.dcps`."""
