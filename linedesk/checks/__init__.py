"""What `linedesk doctor` looks at, one module for each part that an operator would mend."""
